// A server that compresses, and its client: see load.py.
package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	if os.Args[1] == "serve" {
		l, err := net.Listen("unix", os.Args[2])
		if err != nil {
			panic(err)
		}
		http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var b bytes.Buffer
			z := gzip.NewWriter(&b)
			for i := 0; i < 200; i++ {
				fmt.Fprintf(z, "%d %s\n", i*i, r.URL.Path)
			}
			z.Close()
			w.Write(b.Bytes())
		}))
		return
	}
	n, _ := strconv.ParseFloat(os.Args[3], 64)
	var count atomic.Int64
	end := time.Now().Add(time.Duration(n * 1e9))
	var wait sync.WaitGroup
	for c := 0; c < 16; c++ {
		wait.Add(1)
		go func() {
			defer wait.Done()
			client := http.Client{Transport: &http.Transport{Dial: func(_, _ string) (net.Conn, error) { return net.Dial("unix", os.Args[2]) }}}
			for time.Now().Before(end) {
				r, err := client.Get("http://x/path")
				if err != nil {
					panic(err)
				}
				io.Copy(io.Discard, r.Body)
				r.Body.Close()
				count.Add(1)
			}
		}()
	}
	wait.Wait()
	fmt.Println(float64(count.Load()) / n)
}
