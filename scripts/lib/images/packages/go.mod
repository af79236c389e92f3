module convoke.dev/scripts/packages

go 1.24
