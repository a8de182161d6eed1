package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
)

type request struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Version   string `json:"protocolVersion"`
		Arguments struct {
			Size int    `json:"size"`
			Of   string `json:"of"`
		} `json:"arguments"`
	} `json:"params"`
}

const (
	tools = `{"resultType":"complete","tools":[{"name":"text","description":"A text of some size.","inputSchema":{"type":"object",` +
		`"properties":{"size":{"type":"integer"},"of":{"type":"string"}},"required":["size","of"]}}],"ttlMs":0,"cacheScope":"private"}`
	record = `{\"id\": 1, \"name\": \"café\", \"note\": \"line\\nline\"}, `
)

// padding returns escaped text, which is cached because most calls ask for the same size.
var padding = func() func(int) string {
	var lock sync.Mutex
	cache := map[int]string{}
	return func(size int) string {
		lock.Lock()
		defer lock.Unlock()
		text, found := cache[size]
		if !found {
			text = strings.Repeat(record, max(size, 0)/len(record)+1)
			cache[size] = text
		}
		return text
	}
}()

// answer returns the response to a request; nil for a notification.
func answer(line []byte) []byte {
	var asked request
	if err := json.Unmarshal(line, &asked); err != nil || asked.ID == nil {
		return nil
	}
	start := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":`, asked.ID)
	switch asked.Method {
	case "tools/call":
		of := asked.Params.Arguments.Of
		return fmt.Appendf(start, `{"resultType":"complete","content":[{"type":"text","text":"%s %s"}],"isError":false}}`,
			of, padding(asked.Params.Arguments.Size-len(of)))
	case "tools/list":
		return append(append(start, tools...), '}')
	case "initialize":
		return fmt.Appendf(start, `{"protocolVersion":"%s","capabilities":{"tools":{}},"serverInfo":{"name":"load","version":"1"}}}`,
			sessionVersion)
	case "ping":
		return append(start, "{}}"...)
	}
	return fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, asked.ID)
}

func serveStdio() error {
	reader := bufio.NewReaderSize(os.Stdin, 1<<16)
	for {
		line, err := reader.ReadBytes('\n')
		if err != nil {
			return nil
		}
		if response := answer(line); response != nil {
			if _, err := os.Stdout.Write(append(response, '\n')); err != nil {
				return err
			}
		}
	}
}

func serveHTTP(address string) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		connection, err := listener.Accept()
		if err != nil {
			return err
		}
		go serveConnection(connection)
	}
}

func serveConnection(connection net.Conn) {
	defer connection.Close()
	reader := bufio.NewReaderSize(connection, 1<<16)
	for {
		head, err := readHead(reader)
		if err != nil {
			return
		}
		body := make([]byte, head.length)
		if _, err := io.ReadFull(reader, body); err != nil {
			return
		}
		response := []byte("HTTP/1.1 405 Method Not Allowed\r\ncontent-length: 0\r\n\r\n")
		if bytes.HasPrefix(head.first, []byte("POST")) {
			content := answer(body)
			if content == nil {
				response = []byte("HTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n")
			} else {
				response = fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s",
					len(content), content)
			}
		}
		if _, err := connection.Write(response); err != nil {
			return
		}
	}
}
