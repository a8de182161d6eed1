package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// stdioClient has many requests in flight to one process.
type stdioClient struct {
	input  io.WriteCloser
	output *bufio.Reader
}

func (c *stdioClient) send(message []byte) error {
	_, err := c.input.Write(append(message, '\n'))
	return err
}

// receive returns the id and the text of the next response; other messages are skipped.
func (c *stdioClient) receive() (int, []byte, error) {
	for {
		line, err := c.output.ReadBytes('\n')
		if err != nil {
			return 0, nil, err
		}
		_, rest, found := bytes.Cut(line, []byte(`"id":`))
		if !found {
			continue
		}
		rest = bytes.TrimLeft(rest, " ")
		end := bytes.IndexAny(rest, ",} ")
		if id, err := strconv.Atoi(string(rest[:max(end, 0)])); err == nil {
			return id, line, nil
		}
	}
}

func (c *stdioClient) initialize() error {
	err := c.send(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%s",`+
		`"capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`, sessionVersion))
	if err != nil {
		return err
	}
	if _, _, err := c.receive(); err != nil {
		return err
	}
	return c.send([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
}

func (c *stdioClient) run(options options, inFlight int) error {
	if err := c.initialize(); err != nil {
		return err
	}
	sent := make([]time.Time, options.calls+1)
	slots := make(chan struct{}, inFlight)
	failed := make(chan error, 1)
	start := time.Now()
	go func() {
		for id := 1; id <= options.calls; id++ {
			slots <- struct{}{}
			sent[id] = time.Now()
			if err := c.send(makeCall(id, options.size, fmt.Sprintf("call %d of 0", id), "")); err != nil {
				failed <- err
				return
			}
		}
	}()
	latencies := make([]time.Duration, 0, options.calls)
	for range options.calls {
		id, line, err := c.receive()
		if err != nil {
			return err
		}
		if id < 1 || id > options.calls || !bytes.Contains(line, fmt.Appendf(nil, "call %d of 0", id)) {
			return fmt.Errorf("a wrong response: %.300s", line)
		}
		latencies = append(latencies, time.Since(sent[id]))
		<-slots
	}
	select {
	case err := <-failed:
		return err
	default:
		return report(time.Since(start), latencies)
	}
}

func runStdio(arguments []string) error {
	var options options
	flags := flag.NewFlagSet("stdio", flag.ExitOnError)
	options.register(flags)
	inFlight := flags.Int("in-flight", 64, "requests in flight")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	command := exec.Command(flags.Arg(0), flags.Args()[1:]...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		return err
	}
	output, err := command.StdoutPipe()
	if err != nil {
		return err
	}
	if err := command.Start(); err != nil {
		return err
	}
	client := &stdioClient{input, bufio.NewReaderSize(output, 1<<20)}
	err = client.run(options, *inFlight)
	input.Close()
	_, _ = io.Copy(io.Discard, output)
	usage := command.Wait()
	if err == nil {
		err = usage
	}
	return err
}
