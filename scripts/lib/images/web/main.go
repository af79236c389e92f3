// Web is what tests run where an agent or a server would be: it answers every path with 200 and says who it is. It
// is made to fail by its environment, at the start, and by POST /be/..., later:
//
//	WEB_UNREADY=true    POST /be/unready, /be/ready     GET /ready answers 503
//	WEB_SICK=true       POST /be/sick, /be/well         GET /health answers 503
//	WEB_CRASH=3         POST /be/gone?code=3            it ends with that code
//	WEB_EAT_MIB=256     POST /be/hungry?mib=256         it takes that much memory, really, and keeps it
//	WEB_CARD={...}                                      GET /.well-known/agent-card.json answers that
//
// POST /be/answering?path=/a&status=404 makes it answer a path with this status and with what was posted, and with
// &hang=true never. Without a status the path is answered as before. GET /health and GET /ready stay what they are.
//
// It listens on $PORT, or else 8000, and ends at once on SIGTERM.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const mebibyte = 1 << 20

// reply is how a path is answered that was given another answer.
type reply struct {
	status int
	hangs  bool
	body   []byte
}

var (
	unready, sick atomic.Bool
	replies       sync.Map

	eating sync.Mutex
	eaten  [][]byte
)

func main() {
	unready.Store(os.Getenv("WEB_UNREADY") == "true")
	sick.Store(os.Getenv("WEB_SICK") == "true")
	if code := number(os.Getenv("WEB_CRASH")); code != 0 {
		end(code)
	}
	eat(number(os.Getenv("WEB_EAT_MIB")))
	if card := os.Getenv("WEB_CARD"); card != "" {
		replies.Store("/.well-known/agent-card.json", reply{http.StatusOK, false, []byte(card)})
	}

	ends := make(chan os.Signal, 1)
	signal.Notify(ends, syscall.SIGINT, syscall.SIGTERM)
	go func() {
		<-ends
		os.Exit(0)
	}()

	port := os.Getenv("PORT")
	if port == "" {
		port = "8000"
	}
	http.HandleFunc("GET /health", func(w http.ResponseWriter, r *http.Request) { answer(w, r, sick.Load()) })
	http.HandleFunc("GET /ready", func(w http.ResponseWriter, r *http.Request) { answer(w, r, unready.Load()) })
	http.HandleFunc("POST /be/{what}", be)
	http.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if found, ok := replies.Load(r.URL.Path); ok {
			found.(reply).send(w, r)
			return
		}
		answer(w, r, false)
	})
	server := &http.Server{Addr: ":" + port, ReadHeaderTimeout: 10 * time.Second}
	fmt.Printf("%s serves on port %s\n", name(), port)
	log.Fatal(server.ListenAndServe())
}

// be changes how this process is.
func be(w http.ResponseWriter, r *http.Request) {
	switch r.PathValue("what") {
	case "unready", "ready":
		unready.Store(r.PathValue("what") == "unready")
	case "sick", "well":
		sick.Store(r.PathValue("what") == "sick")
	case "hungry":
		eat(number(r.FormValue("mib")))
	case "answering":
		if err := learn(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
	case "gone":
		end(number(r.FormValue("code")))
	default:
		http.NotFound(w, r)
		return
	}
	answer(w, r, false)
}

// learn takes another answer for a path, or takes it back.
func learn(r *http.Request) error {
	body, err := io.ReadAll(io.LimitReader(r.Body, 16*mebibyte))
	if err != nil {
		return err
	}
	given := r.URL.Query()
	path, status, hangs := given.Get("path"), number(given.Get("status")), given.Get("hang") == "true"
	if status == 0 && !hangs {
		replies.Delete(path)
		return nil
	}
	replies.Store(path, reply{status, hangs, body})
	return nil
}

// send answers in the other way.
func (other reply) send(w http.ResponseWriter, r *http.Request) {
	if other.hangs {
		<-r.Context().Done()
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(other.status)
	if _, err := w.Write(other.body); err != nil {
		log.Print(err)
	}
}

// answer says who this is, as a failure or not.
func answer(w http.ResponseWriter, r *http.Request, fails bool) {
	w.Header().Set("Content-Type", "application/json")
	if fails {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	host, _ := os.Hostname()
	err := json.NewEncoder(w).Encode(map[string]string{
		"name": name(), "version": os.Getenv("WEB_VERSION"), "host": host, "path": r.URL.Path,
	})
	if err != nil {
		log.Print(err)
	}
}

func name() string {
	if name := os.Getenv("AGENT_NAME"); name != "" {
		return name
	}
	return "web"
}

// eat takes memory that counts: every page is written.
func eat(mebibytes int) {
	eating.Lock()
	defer eating.Unlock()
	for range mebibytes {
		block := make([]byte, mebibyte)
		for i := 0; i < len(block); i += 4096 {
			block[i] = 1
		}
		eaten = append(eaten, block)
	}
}

func end(code int) {
	fmt.Printf("told to end with code %d\n", code)
	os.Exit(code)
}

// number of a text, 0 when it is none or negative.
func number(text string) int {
	value, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(value, 0)
}
