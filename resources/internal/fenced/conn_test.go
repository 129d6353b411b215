// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package fenced

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/skep-operator/skep/runtime/waittest"
)

func TestMain(m *testing.M) { waittest.Main(m) }

var errClosed = errors.New("closed")

// fence is closed by close, or missed: by its deadline, without a callback.
type fence struct {
	mu      sync.Mutex
	missed  bool
	closed  bool
	onClose []func()
}

func (f *fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.missed || f.closed {
		return errClosed
	}
	return nil
}

func (f *fence) OnClose(c func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.onClose = append(f.onClose, c)
}

func (f *fence) miss() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.missed = true
}

func (f *fence) close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	for _, c := range f.onClose {
		c()
	}
}

// peer is a server that takes connections.
type peer struct{ net.Listener }

func listen(t *testing.T, network, address string) peer {
	t.Helper()
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return peer{l}
}

// pair is a connection to the peer, and its other end.
func (p peer) pair(t *testing.T, d *Dialer) (ours, theirs net.Conn) {
	t.Helper()
	ours, err := d.DialContext(t.Context(), p.Addr().Network(), p.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err = p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	return ours, theirs
}

func (d *Dialer) open() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

var plain = (&net.Dialer{}).DialContext

func TestLateWriteIsRefusedAndEndsTheConnection(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1:0", "unix": filepath.Join(t.TempDir(), "s")} {
		t.Run(network, func(t *testing.T) {
			f := &fence{}
			d := NewDialer(f, plain, nil)
			ours, theirs := listen(t, network, address).pair(t, d)
			if _, err := ours.Write([]byte("early")); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("early"))
			if _, err := io.ReadFull(theirs, got); err != nil || string(got) != "early" {
				t.Errorf("received %q, %v", got, err)
			}
			f.miss() // what a process sees that was stopped
			if n, err := ours.Write([]byte("late")); n != 0 || !errors.Is(err, errClosed) {
				t.Fatalf("late write: %d, %v", n, err)
			}
			if err := theirs.SetReadDeadline(time.Now().Add(waittest.Limit)); err != nil {
				t.Fatal(err)
			}
			if late, err := io.ReadAll(theirs); len(late) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("received %q after the fence was closed, %v", late, err)
			}
			if d.open() != 0 {
				t.Error("the connection is kept")
			}
		})
	}
}

func TestCloseDropsWhatTheKernelHolds(t *testing.T) {
	f := &fence{}
	d := NewDialer(f, plain, nil)
	ours, theirs := listen(t, "tcp", "127.0.0.1:0").pair(t, d)
	// Fill both kernels' buffers, so that something is left to send.
	full := make(chan struct{})
	var filling sync.WaitGroup
	filling.Go(func() {
		for {
			if _, err := ours.Write(make([]byte, 1<<16)); err != nil {
				close(full)
				return
			}
		}
	})
	defer filling.Wait()
	if _, err := theirs.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	f.close()
	<-full // no write goes on
	received, err := io.Copy(io.Discard, theirs)
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the connection ended with %v after %d bytes, want a reset", err, received)
	}
	if d.open() != 0 {
		t.Error("the connection is kept")
	}
}

func TestUnacknowledgedBytesAreCounted(t *testing.T) {
	f := &fence{}
	var unsent atomic.Int64
	d := NewDialer(f, plain, func(bytes int) { unsent.Add(int64(bytes)) })
	ours, _ := listen(t, "tcp", "127.0.0.1:0").pair(t, d)
	raw, err := ours.(*conn).Conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; { // until the buffers of both kernels are full
		err := raw.Write(func(fd uintptr) bool {
			_, err := syscall.Write(int(fd), make([]byte, 1<<16))
			more = !errors.Is(err, syscall.EAGAIN)
			return true
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	f.close()
	if unsent.Load() == 0 {
		t.Error("nothing was counted")
	}
}

func TestIdleConnectionsEndWithTheFence(t *testing.T) {
	f := &fence{}
	d := NewDialer(f, plain, nil)
	p := listen(t, "tcp", "127.0.0.1:0")
	ours, theirs := p.pair(t, d)
	closed, _ := p.pair(t, d)
	closed.Close()
	if d.open() != 1 {
		t.Errorf("%d connections are kept, want the open one", d.open())
	}
	f.close()
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("an idle connection outlives the fence")
	}
	if _, err := ours.Write([]byte("x")); !errors.Is(err, errClosed) {
		t.Errorf("a write after the fence: %v", err)
	}
}

func TestNoConnectionBehindAShutFence(t *testing.T) {
	f := &fence{closed: true}
	d := NewDialer(f, func(context.Context, string, string) (net.Conn, error) {
		t.Error("dialled")
		return nil, errors.New("no")
	}, nil)
	if _, err := d.DialContext(t.Context(), "tcp", "x"); !errors.Is(err, errClosed) {
		t.Errorf("dial: %v", err)
	}
}

// The fence closes and resets all known connections while another is being dialled.
func TestConnectionThatComesTooLateIsReset(t *testing.T) {
	f := &fence{}
	p := listen(t, "tcp", "127.0.0.1:0")
	d := NewDialer(f, func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := plain(ctx, network, address)
		f.close()
		return c, err
	}, nil)
	if c, err := d.DialContext(t.Context(), "tcp", p.Addr().String()); !errors.Is(err, errClosed) {
		t.Errorf("dial: %v, %v", c, err)
	}
	theirs, err := p.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer theirs.Close()
	if _, err := theirs.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is open")
	}
	if d.open() != 0 {
		t.Error("the connection is kept")
	}
}
