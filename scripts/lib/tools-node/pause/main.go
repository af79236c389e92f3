// Pause is the process of the container that holds a pod's namespaces: it waits for its end and reaps what
// processes of a shared PID namespace leave behind.
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	for {
		select {
		case <-ends:
			return
		case <-children:
			for {
				pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
				if err != syscall.EINTR && (err != nil || pid <= 0) {
					break
				}
			}
		}
	}
}
