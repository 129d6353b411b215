// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"syscall"
	"testing"

	"github.com/skep-operator/skep/resources/clustertest/control"
	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) {
	waittest.Main(m)
}

var quiet = slog.New(slog.DiscardHandler)

// newEcho runs a server that sends back what it gets.
func newEcho(t *testing.T) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

func newTCPProxy(t *testing.T, address string, state control.Link) *Proxy {
	p, err := NewTCP(Config{ID: "test", Backend: "echo", Log: quiet, Link: state}, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func echo(t *testing.T, c net.Conn) {
	t.Helper()
	writeString(t, c, "ping")
	if got := readString(t, c, 4); got != "ping" {
		t.Fatalf("echo of ping is %q", got)
	}
}

func TestForwardsAndHalfCloses(t *testing.T) {
	p := newTCPProxy(t, newEcho(t), control.Link{})
	c := dial(t, p)
	writeString(t, c, "all of it")
	c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "all of it" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestRefuseKeepsThePortAndOpenConnections(t *testing.T) {
	p := newTCPProxy(t, newEcho(t), control.Link{Refuse: true})
	if _, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a proxy that starts refusing: %v", err)
	}
	if err := p.Heal(); err != nil {
		t.Fatal(err)
	}
	c := dial(t, p)
	echo(t, c)
	if err := p.SetLink(control.Link{Refuse: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Fatalf("a refusing proxy: %v", err)
	}
	echo(t, c)
	if info := p.Info(); info.Accepted != 1 || info.Connections != 1 || info.BytesUp != 8 || info.BytesDown != 8 {
		t.Fatalf("info is %+v", info)
	}
}

func TestCut(t *testing.T) {
	p := newTCPProxy(t, newEcho(t), control.Link{})
	for _, tc := range []struct {
		how  control.CutConnections
		want error
	}{
		{control.CutConnections{}, syscall.ECONNRESET},
		{control.CutConnections{Finish: true}, io.EOF},
	} {
		c := dial(t, p)
		echo(t, c)
		if n := p.Cut(tc.how); n != 1 {
			t.Fatalf("cut %d connections, want 1", n)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, tc.want) {
			t.Errorf("after %+v the client sees %v, want %v", tc.how, err, tc.want)
		}
	}
}

func TestBackendAway(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	p := newTCPProxy(t, ln.Addr().String(), control.Link{})
	// The reset may come while the client is still busy connecting.
	c, err := net.Dial("tcp", p.Address())
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("a connection to nowhere ends with %v, want a reset", err)
	}
}

func TestTCPProxyRefusesRules(t *testing.T) {
	p := newTCPProxy(t, newEcho(t), control.Link{})
	if _, err := p.AddRule(control.Rule{Status: &control.Status{Code: 500}}); err == nil {
		t.Error("a TCP proxy took a rule that it cannot apply")
	}
	if _, err := p.CutWatches(control.CutWatches{}); err == nil {
		t.Error("a TCP proxy said that it cut watches")
	}
	if err := p.SetLink(control.Link{Up: control.Direction{Delay: -1}}); err == nil {
		t.Error("a negative delay was accepted")
	}
}
