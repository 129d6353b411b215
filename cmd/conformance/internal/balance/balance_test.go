// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package balance

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// named is a backend over TCP or UDP that answers with its name.
func named(t *testing.T, network, name string) string {
	t.Helper()
	if network == "udp" {
		socket, err := net.ListenPacket(network, "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		go func() {
			for buffer := make([]byte, 100); ; {
				_, client, err := socket.ReadFrom(buffer)
				if err != nil {
					return
				}
				_, _ = socket.WriteTo([]byte(name), client)
			}
		}()
		return socket.LocalAddr().String()
	}
	socket, err := net.Listen(network, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	go func() {
		for {
			c, err := socket.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, name)
			_ = c.Close()
		}
	}()
	return socket.Addr().String()
}

// ask is the name of the backend that a new client gets, "" if none answers.
func ask(t *testing.T, network, address string) string {
	t.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(time.Second))
	if network == "udp" {
		_, _ = io.WriteString(c, "?")
	}
	buffer := make([]byte, 100)
	n, _ := c.Read(buffer)
	return string(buffer[:n])
}

// Clients get backends by their weights, one of weight 0 none, and without backends no answer.
func TestWeights(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			var backends atomic.Pointer[[]Backend]
			backends.Store(&[]Backend{{named(t, network, "a"), 3}, {named(t, network, "b"), 1}, {named(t, network, "c"), 0}})
			current := func() []Backend { return *backends.Load() }
			var at string
			if network == "tcp" {
				l, err := ListenTCP("127.0.0.1:0", current)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				at = l.socket.Addr().String()
			} else {
				l, err := ListenUDP("127.0.0.1:0", current)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				at = l.socket.LocalAddr().String()
			}
			count := map[string]int{}
			for range 400 {
				count[ask(t, network, at)]++
			}
			if count["a"] < 250 || count["a"]+count["b"] != 400 || count["b"] < 50 {
				t.Error(count)
			}
			backends.Store(&[]Backend{})
			if got := ask(t, network, at); got != "" {
				t.Error(got)
			}
		})
	}
}
