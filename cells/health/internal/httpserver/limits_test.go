// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package httpserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

// newClient opens a connection for each request.
func newClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
}

// serveWith serves with limits until the test ends, and returns the address.
func serveWith(t *testing.T, l Limits, handler http.HandlerFunc) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := l.server(handler)
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Close() })
	return listener.Addr().String()
}

// dial opens a connection and sends the beginning of a request.
func dial(t *testing.T, address, text string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
	return conn
}

const request11 = "GET / HTTP/1.1\r\nHost: x\r\n"

// awaitEnd waits until the server has closed a connection.
func awaitEnd(t *testing.T, what string, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(waittest.Limit))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%s: the connection stays open: %v", what, err)
	}
}

// API-16: what a client does not send in time, its connection is closed for.
func TestSlowClientsAreLeft(t *testing.T) {
	never := time.Hour
	ok := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }
	for name, c := range map[string]struct {
		limits Limits
		text   string
		handle http.HandlerFunc
	}{
		"nothing is sent":               {Limits{header: 50 * time.Millisecond, request: never, idle: never, connections: 9}, "", ok},
		"no end of the headers":         {Limits{header: 50 * time.Millisecond, request: never, idle: never, connections: 9}, request11, ok},
		"no end of the body":            {Limits{header: never, request: 50 * time.Millisecond, idle: never, connections: 9}, request11 + "Content-Length: 9\r\n\r\nx", ok},
		"a body that the handler skips": {Limits{header: never, request: 50 * time.Millisecond, idle: never, connections: 9}, request11 + "Content-Length: 9\r\n\r\nx", func(http.ResponseWriter, *http.Request) {}},
		"no end of a chunk":             {Limits{header: never, request: 50 * time.Millisecond, idle: never, connections: 9}, request11 + "Transfer-Encoding: chunked\r\n\r\n9\r\nx", ok},
		"no next request":               {Limits{header: never, request: never, idle: 50 * time.Millisecond, connections: 9}, request11 + "\r\n", ok},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			awaitEnd(t, name, dial(t, serveWith(t, c.limits, c.handle), c.text))
		})
	}
}

// API-16: the limit of a request does not end an answer that lasts.
func TestAnswersMayLast(t *testing.T) {
	address := serveWith(t, Limits{header: time.Hour, request: 20 * time.Millisecond, idle: time.Hour, connections: 9}, func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-r.Context().Done():
			t.Error("the request was ended")
		case <-time.After(200 * time.Millisecond): // ten times the limit
			fmt.Fprint(w, "done")
		}
	})
	resp, err := newClient().Get("http://" + address)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); string(text) != "done" {
		t.Errorf("%q, %v", text, err)
	}
}

// API-16: any number of idle clients holds a few connections, and keeps no probe out.
func TestConnectionsAreBounded(t *testing.T) {
	const limit = 8
	address := serveWith(t, Limits{header: time.Hour, request: time.Hour, idle: time.Hour, connections: limit}, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	var idle []net.Conn
	for i := range 10 * limit {
		text := request11 + "\r\n"
		if i%2 == 1 {
			text = "GET" // and no more
		}
		conn := dial(t, address, text)
		if i%2 == 0 {
			if _, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil {
				t.Fatalf("client %d gets no answer: %v", i, err)
			}
		}
		idle = append(idle, conn)
	}
	for i, conn := range idle[:9*limit] {
		awaitEnd(t, fmt.Sprintf("connection %d of %d", i, len(idle)), conn)
	}
	if resp, err := newClient().Get("http://" + address); err != nil {
		t.Errorf("a probe: %v", err)
	} else {
		resp.Body.Close()
	}
}

// With requests under way on all connections one more is closed, and none of them.
func TestConnectionsAtWorkAreKept(t *testing.T) {
	const limit = 2
	goOn, began := make(chan struct{}), make(chan struct{}, limit)
	address := serveWith(t, Limits{header: time.Hour, request: time.Hour, idle: time.Hour, connections: limit}, func(w http.ResponseWriter, _ *http.Request) {
		began <- struct{}{}
		<-goOn
	})
	var busy []net.Conn
	for range limit {
		busy = append(busy, dial(t, address, request11+"\r\n"))
		<-began
	}
	awaitEnd(t, "one too many", dial(t, address, ""))
	close(goOn)
	for i, conn := range busy {
		if resp, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || resp.StatusCode != 200 {
			t.Errorf("request %d: %v", i, err)
		}
	}
}
