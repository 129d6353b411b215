// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package balance

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// Backend is where connections or datagrams go.
type Backend struct {
	Address string // host:port
	Weight  uint32 // relative to those of the others; 0 for none
}

// Backends returns those that there are. It is called for each connection, and for the first datagram of each client.
type Backends func() []Backend

// dialTimeout is how long a backend may take to accept a connection.
const dialTimeout = 5 * time.Second

// choose picks a backend by the weights, "" if there is none.
func choose(all []Backend) string {
	total := uint32(0)
	for _, b := range all {
		total += b.Weight
	}
	if total == 0 {
		return ""
	}
	n := rand.Uint32N(total)
	for _, b := range all {
		if n < b.Weight {
			return b.Address
		}
		n -= b.Weight
	}
	return ""
}

// Connections passes on the connections of an address until it is closed.
type Connections struct {
	socket   net.Listener
	backends Backends
	accepts  sync.WaitGroup
}

// ListenTCP serves an address, host:port.
func ListenTCP(address string, backends Backends) (*Connections, error) {
	socket, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	c := &Connections{socket: socket, backends: backends}
	c.accepts.Go(c.accept)
	return c, nil
}

// Close accepts no connections any more. Those that were passed on end by themselves.
func (c *Connections) Close() error {
	err := c.socket.Close()
	c.accepts.Wait()
	return err
}

func (c *Connections) accept() {
	for {
		client, err := c.socket.Accept()
		if err != nil {
			return
		}
		go c.serve(client)
	}
}

func (c *Connections) serve(client net.Conn) {
	to := choose(c.backends())
	if to == "" {
		_ = client.Close()
		return
	}
	backend, err := net.DialTimeout("tcp", to, dialTimeout)
	if err != nil {
		_ = client.Close()
		return
	}
	Splice(client, backend)
}

// Splice connects two connections until either ends, and closes both.
func Splice(a, b net.Conn) {
	defer a.Close()
	defer b.Close()
	ended := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		go func() {
			_, _ = io.Copy(way[0], way[1])
			ended <- struct{}{}
		}()
	}
	<-ended // the deferred calls end the other one
}
