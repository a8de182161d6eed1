// Command load puts load on an MCP gateway, and is the server behind it, so that neither end is the bottleneck.
//
//	load http URL -connections 16 -calls 2000 -size 1000 -era session|modern
//	load stdio -in-flight 64 -calls 20000 -size 1000 -- COMMAND…
//	load serve-stdio
//	load serve-http 127.0.0.1:8000
//
// A client prints one line of JSON: calls, seconds, p50_ms and p99_ms. It exits with 1 if any response is wrong.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"
)

const (
	sessionVersion = "2025-11-25"
	modernVersion  = "2026-07-28"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: load http|stdio|serve-http|serve-stdio"))
	}
	var err error
	switch arguments := os.Args[2:]; os.Args[1] {
	case "http":
		err = runHTTP(arguments)
	case "stdio":
		err = runStdio(arguments)
	case "serve-http":
		err = serveHTTP(arguments[0])
	case "serve-stdio":
		err = serveStdio()
	default:
		err = fmt.Errorf("no command %q", os.Args[1])
	}
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "load:", err)
	os.Exit(1)
}

// options are those of both clients.
type options struct {
	calls int
	size  int
}

func (o *options) register(flags *flag.FlagSet) {
	flags.IntVar(&o.calls, "calls", 2000, "calls in all")
	flags.IntVar(&o.size, "size", 1000, "bytes of a result")
}

// makeCall returns a request for a result of a size. The result contains the label.
func makeCall(id int, size int, label, meta string) []byte {
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"text","arguments":{"size":%d,"of":"%s"}%s}}`,
		id, size, label, meta)
}

func report(seconds time.Duration, latencies []time.Duration) error {
	slices.Sort(latencies)
	at := func(part float64) float64 {
		return latencies[int(part*float64(len(latencies)-1))].Seconds() * 1000
	}
	return json.NewEncoder(os.Stdout).Encode(map[string]any{
		"calls": len(latencies), "seconds": seconds.Seconds(), "p50_ms": at(0.5), "p99_ms": at(0.99),
	})
}
