// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// pair is a connection through a link: what is written to client arrives at
// server and the other way round. It lives in a synctest bubble, so times are
// exact.
type pair struct {
	client, server net.Conn
	conn           *conn
	link           *link
	up, down       atomic.Int64
}

func newPair(t *testing.T, state control.Link) *pair {
	return newPairThrough(t, state, func(front net.Conn) net.Conn { return front })
}

// newPairThrough is newPair with another front of the connection.
func newPairThrough(t *testing.T, state control.Link, through func(front net.Conn) net.Conn) *pair {
	client, front := net.Pipe()
	back, server := net.Pipe()
	c := &conn{front: through(front), back: back, done: make(chan struct{})}
	p := &pair{client: client, server: server, conn: c, link: newLink(state)}
	go c.run(p.link, &p.up, &p.down)
	t.Cleanup(func() {
		c.close(false)
		client.Close()
		server.Close()
		synctest.Wait()
	})
	return p
}

func readString(t *testing.T, c net.Conn, n int) string {
	t.Helper()
	buf := make([]byte, n)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatalf("read %d bytes: %v", n, err)
	}
	return string(buf)
}

func writeString(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatalf("write %q: %v", s, err)
	}
}

// assertSilent checks that nothing arrives for an hour.
func assertSilent(t *testing.T, c net.Conn) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(time.Hour))
	defer c.SetReadDeadline(time.Time{})
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read got %d bytes, error %v; want silence", n, err)
	}
}

func TestBlackHoleHoldsOneDirectionAndDeliversLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Up: control.Direction{BlackHole: true}})
		writeString(t, p.client, "a")
		writeString(t, p.client, "b")
		assertSilent(t, p.server)
		writeString(t, p.server, "down")
		if got := readString(t, p.client, 4); got != "down" {
			t.Fatalf("the other direction delivered %q", got)
		}
		p.link.set(control.Link{})
		if got := readString(t, p.server, 2); got != "ab" {
			t.Fatalf("after the hole %q was delivered, want ab", got)
		}
	})
}

// When bytes were sent is known however late they are delivered.
func TestArrivalIsWhenBytesWereSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Up: control.Direction{BlackHole: true}})
		writeString(t, p.client, "a")
		sent := time.Now()
		assertSilent(t, p.server)
		p.link.set(control.Link{Up: control.Direction{Delay: 2 * time.Hour}})
		readString(t, p.server, 1)
		if got := p.conn.arrived.get(); !got.Equal(sent) {
			t.Errorf("sent at %s, and known to have been at %s", sent, got)
		}
	})
}

func TestBlackHoleHidesTheEndOfAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Up: control.Direction{BlackHole: true}})
		p.client.Close()
		assertSilent(t, p.server)
		p.link.set(control.Link{})
		if _, err := p.server.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("after the hole the end was %v, want EOF", err)
		}
	})
}

// resetting is a connection whose peer ends it with RST, where a pipe has EOF.
type resetting struct{ net.Conn }

func (c resetting) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == io.EOF {
		err = syscall.ECONNRESET
	}
	return n, err
}

func TestBlackHoleLosesWhatAResetConnectionSent(t *testing.T) {
	reset := func(front net.Conn) net.Conn { return resetting{front} }
	for _, sent := range []string{"", "PUT"} {
		synctest.Test(t, func(t *testing.T) {
			p := newPairThrough(t, control.Link{Up: control.Direction{BlackHole: true}}, reset)
			writeString(t, p.client, sent)
			p.client.Close()
			assertSilent(t, p.server)
			p.link.set(control.Link{})
			if got, _ := io.ReadAll(p.server); len(got) > 0 {
				t.Errorf("after the hole %q of a connection that was reset was delivered", got)
			}
		})
	}
}

// Outside of a black hole, bytes that were sent before the reset are on their way.
func TestDelayedBytesOutliveAReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		link := control.Link{Up: control.Direction{Delay: time.Second}}
		p := newPairThrough(t, link, func(front net.Conn) net.Conn { return resetting{front} })
		writeString(t, p.client, "PUT")
		p.client.Close()
		if got := readString(t, p.server, 3); got != "PUT" {
			t.Errorf("got %q", got)
		}
	})
}

func TestDelayIsLatencyNotThroughput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100 * time.Millisecond
		p := newPair(t, control.Link{Up: control.Direction{Delay: delay}})
		start := time.Now()
		for range 10 {
			writeString(t, p.client, "x")
		}
		readString(t, p.server, 10)
		if took := time.Since(start); took != delay {
			t.Fatalf("ten writes took %v, want one delay of %v", took, delay)
		}
	})
}

func TestJitterKeepsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Up: control.Direction{Jitter: time.Second}})
		start := time.Now()
		const sent = "abcdefghijklmnopqrstuvwxyz"
		for _, c := range sent {
			writeString(t, p.client, string(c))
		}
		if got := readString(t, p.server, len(sent)); got != sent {
			t.Fatalf("got %q", got)
		}
		if took := time.Since(start); took == 0 || took > time.Second {
			t.Fatalf("26 jittered writes took %v, want more than 0 and at most 1s", took)
		}
	})
}

func TestHealDeliversDelayedBytesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Up: control.Direction{Delay: time.Hour}})
		start := time.Now()
		writeString(t, p.client, "x")
		synctest.Wait()
		p.link.set(control.Link{})
		readString(t, p.server, 1)
		if took := time.Since(start); took != 0 {
			t.Fatalf("delivered %v after healing", took)
		}
	})
}

func TestBandwidth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{Down: control.Direction{BytesPerSecond: 10}})
		start := time.Now()
		for range 5 {
			writeString(t, p.server, "0123456789")
		}
		readString(t, p.client, 50)
		if took := time.Since(start); took != 4*time.Second {
			t.Fatalf("the last of five pieces of a second each came after %v, want 4s", took)
		}
	})
}

func TestCutAfterBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPair(t, control.Link{})
		writeString(t, p.server, "before")
		readString(t, p.client, 6)
		p.link.set(control.Link{Down: control.Direction{CutAfter: 10}})
		writeString(t, p.server, "1234")
		readString(t, p.client, 4)
		writeString(t, p.server, "5678901234")
		got, err := io.ReadAll(p.client)
		if string(got) != "567890" || err != nil {
			t.Fatalf("got %q, %v; want the rest of ten bytes and the end", got, err)
		}
		if n := p.down.Load(); n != 16 {
			t.Fatalf("%d bytes counted, want 16", n)
		}
	})
}
