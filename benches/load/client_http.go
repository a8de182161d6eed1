package main

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

type httpHead struct {
	first     []byte
	length    int
	isChunked bool
	session   string
}

func readHead(reader *bufio.Reader) (httpHead, error) {
	var head httpHead
	lines := textproto.NewReader(reader)
	first, err := lines.ReadLineBytes()
	if err != nil {
		return head, err
	}
	head.first = bytes.Clone(first)
	for {
		line, err := lines.ReadLineBytes()
		if err != nil {
			return head, err
		}
		if len(line) == 0 {
			return head, nil
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		text := string(bytes.TrimSpace(value))
		switch strings.ToLower(string(name)) {
		case "content-length":
			if head.length, err = strconv.Atoi(text); err != nil {
				return head, err
			}
		case "transfer-encoding":
			head.isChunked = text == "chunked"
		case "mcp-session-id":
			head.session = text
		}
	}
}

func readBody(reader *bufio.Reader, head httpHead) ([]byte, error) {
	if !head.isChunked {
		body := make([]byte, head.length)
		_, err := io.ReadFull(reader, body)
		return body, err
	}
	var body []byte
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(line), 16, 64)
		if err != nil {
			return nil, err
		}
		chunk := make([]byte, size+2)
		if _, err := io.ReadFull(reader, chunk); err != nil {
			return nil, err
		}
		if size == 0 {
			return body, nil
		}
		body = append(body, chunk[:size]...)
	}
}

// httpClient has a connection and, in the session era, a session of its own.
type httpClient struct {
	name       int
	connection net.Conn
	reader     *bufio.Reader
	head       string
	isModern   bool
}

func connectHTTP(name int, address *url.URL, token string, isModern bool) (*httpClient, error) {
	connection, err := net.Dial("tcp", address.Host)
	if err != nil {
		return nil, err
	}
	head := fmt.Sprintf("POST %s HTTP/1.1\r\nhost: %s\r\naccept: application/json, text/event-stream\r\ncontent-type: application/json\r\n",
		address.RequestURI(), address.Host)
	if token != "" {
		head += "authorization: Bearer " + token + "\r\n"
	}
	client := &httpClient{name, connection, bufio.NewReaderSize(connection, 1<<16), head, isModern}
	if isModern {
		client.head += "mcp-protocol-version: " + modernVersion + "\r\nmcp-method: tools/call\r\nmcp-name: text\r\n"
		return client, nil
	}
	_, answered, err := client.post(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"%s",`+
		`"capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`, sessionVersion))
	if err != nil {
		return nil, err
	}
	if answered.session != "" {
		client.head += "mcp-session-id: " + answered.session + "\r\n"
	}
	client.head += "mcp-protocol-version: " + sessionVersion + "\r\n"
	_, _, err = client.post([]byte(`{"jsonrpc":"2.0","method":"notifications/initialized"}`))
	return client, err
}

func (c *httpClient) post(message []byte) ([]byte, httpHead, error) {
	if _, err := c.connection.Write(fmt.Appendf(nil, "%scontent-length: %d\r\n\r\n%s", c.head, len(message), message)); err != nil {
		return nil, httpHead{}, err
	}
	head, err := readHead(c.reader)
	if err != nil {
		return nil, head, err
	}
	body, err := readBody(c.reader, head)
	if err == nil && !bytes.Contains(head.first, []byte(" 20")) {
		err = fmt.Errorf("%s: %.300s", head.first, body)
	}
	return body, head, err
}

func (c *httpClient) call(number, size int) error {
	meta := ""
	if c.isModern {
		meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientInfo":` +
			`{"name":"load","version":"1"},"io.modelcontextprotocol/clientCapabilities":{}}`
	}
	label := fmt.Sprintf("call %d of %d", number, c.name)
	body, _, err := c.post(makeCall(number, size, label, meta))
	if err == nil && !(bytes.Contains(body, []byte(label)) && bytes.Contains(body, []byte(`"result"`))) {
		err = fmt.Errorf("a wrong response to %s: %.300s", label, body)
	}
	return err
}

func runHTTP(arguments []string) error {
	var options options
	flags := flag.NewFlagSet("http", flag.ExitOnError)
	options.register(flags)
	connections := flags.Int("connections", 16, "clients, each with a connection")
	era := flags.String("era", "session", "session or modern")
	token := flags.String("token", "", "bearer token")
	if err := flags.Parse(arguments[1:]); err != nil {
		return err
	}
	address, err := url.Parse(arguments[0])
	if err != nil {
		return err
	}
	clients := make([]*httpClient, *connections)
	for i := range clients {
		if clients[i], err = connectHTTP(i, address, *token, *era == "modern"); err != nil {
			return err
		}
	}
	calls := options.calls / *connections
	latencies := make([][]time.Duration, *connections)
	errors := make([]error, *connections)
	var group sync.WaitGroup
	start := time.Now()
	for i, client := range clients {
		group.Add(1)
		go func() {
			defer group.Done()
			for number := 1; number <= calls && errors[i] == nil; number++ {
				begin := time.Now()
				errors[i] = client.call(number, options.size)
				latencies[i] = append(latencies[i], time.Since(begin))
			}
		}()
	}
	group.Wait()
	seconds := time.Since(start)
	var all []time.Duration
	for i := range clients {
		if errors[i] != nil {
			return errors[i]
		}
		all = append(all, latencies[i]...)
	}
	return report(seconds, all)
}
