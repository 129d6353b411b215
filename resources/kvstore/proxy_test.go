// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package kvstore

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"
)

// switchProxy is an address at which one etcd can replace another.
type switchProxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu     sync.Mutex
	target string
	conns  map[net.Conn]struct{}
}

func newSwitchProxy(t *testing.T, endpoint string) *switchProxy {
	t.Helper()
	r := &switchProxy{listener: must(net.Listen("tcp", "127.0.0.1:0"))(t), conns: map[net.Conn]struct{}{}}
	r.lead(t, endpoint)
	r.wg.Go(r.accept)
	t.Cleanup(func() {
		_ = r.listener.Close()
		r.cut()
		r.wg.Wait()
	})
	return r
}

func (r *switchProxy) address() string { return "http://" + r.listener.Addr().String() }

// lead sends new connections to another endpoint, and cuts those that there
// are.
func (r *switchProxy) lead(t *testing.T, endpoint string) {
	t.Helper()
	u := must(url.Parse(endpoint))(t)
	r.mu.Lock()
	r.target = u.Host
	r.mu.Unlock()
	r.cut()
}

func (r *switchProxy) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.Close()
	}
	clear(r.conns)
}

func (r *switchProxy) accept() {
	for {
		near, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		far, err := net.Dial("tcp", r.target)
		if err != nil {
			_ = near.Close()
			r.mu.Unlock()
			continue
		}
		r.conns[near], r.conns[far] = struct{}{}, struct{}{}
		r.mu.Unlock()
		for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
			r.wg.Go(func() {
				_, _ = io.Copy(way[0], way[1])
				_ = way[0].Close()
				_ = way[1].Close()
			})
		}
	}
}
