module convoke.dev/scripts/web

go 1.24
