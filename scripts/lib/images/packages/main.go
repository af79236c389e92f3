// Packages serves the files below its first argument on port 8080: a package index is static pages and wheels. It ends
// at once on SIGTERM.
package main

import (
	"log"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: serve FOLDER")
	}
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ends
		os.Exit(0)
	}()
	server := &http.Server{
		Addr:              ":8080",
		Handler:           http.FileServer(http.Dir(os.Args[1])),
		ReadHeaderTimeout: 10 * time.Second,
	}
	log.Fatal(server.ListenAndServe())
}
