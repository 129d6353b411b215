// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package k8s

import (
	"context"
	"net"
	"sync"
)

type dialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// connPool is the open connections of one transport, which can be told to start
// afresh.
type connPool struct {
	dial dialFunc

	mu    sync.Mutex
	conns map[*pooledConn]struct{}
}

func newConnPool(dial dialFunc) *connPool {
	return &connPool{dial: dial, conns: map[*pooledConn]struct{}{}}
}

func (p *connPool) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	inner, err := p.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &pooledConn{inner, p}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return c, nil
}

// reset closes all connections; requests dial anew.
func (p *connPool) reset() {
	p.mu.Lock()
	conns := p.conns
	p.conns = map[*pooledConn]struct{}{}
	p.mu.Unlock()
	for c := range conns {
		_ = c.Conn.Close()
	}
}

type pooledConn struct {
	net.Conn
	pool *connPool
}

func (c *pooledConn) Close() error {
	c.pool.mu.Lock()
	delete(c.pool.conns, c)
	c.pool.mu.Unlock()
	return c.Conn.Close()
}
