// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package balance

import (
	"net"
	"sync"
	"time"
)

// idle is how long a client keeps its backend without an answer from there.
const idle = 10 * time.Second

// largest is the largest datagram that is passed on.
const largest = 64 << 10

// Datagrams passes on the datagrams of an address until it is closed: those of a client to one backend, and the answers back.
type Datagrams struct {
	socket   net.PacketConn
	backends Backends
	jobs     sync.WaitGroup

	mu     sync.Mutex
	closed bool
	flows  map[string]net.Conn // to the backends, by the address of the client
}

// ListenUDP serves an address, host:port.
func ListenUDP(address string, backends Backends) (*Datagrams, error) {
	socket, err := net.ListenPacket("udp", address)
	if err != nil {
		return nil, err
	}
	d := &Datagrams{socket: socket, backends: backends, flows: map[string]net.Conn{}}
	d.jobs.Go(d.read)
	return d, nil
}

// Close passes nothing on any more.
func (d *Datagrams) Close() error {
	err := d.socket.Close()
	d.mu.Lock()
	d.closed = true
	for _, flow := range d.flows {
		_ = flow.Close()
	}
	d.mu.Unlock()
	d.jobs.Wait()
	return err
}

func (d *Datagrams) read() {
	buffer := make([]byte, largest)
	for {
		n, client, err := d.socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		if flow := d.flow(client); flow != nil {
			_, _ = flow.Write(buffer[:n]) // a backend that is gone loses datagrams
		}
	}
}

// flow is the connection with the backend of a client, nil if there is none.
func (d *Datagrams) flow(client net.Addr) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if flow := d.flows[client.String()]; flow != nil || d.closed {
		return flow
	}
	to := choose(d.backends())
	if to == "" {
		return nil
	}
	flow, err := net.Dial("udp", to)
	if err != nil {
		return nil
	}
	d.flows[client.String()] = flow
	d.jobs.Go(func() { d.answer(client, flow) })
	return flow
}

// answer passes the answers of a backend on to a client.
func (d *Datagrams) answer(client net.Addr, flow net.Conn) {
	defer func() {
		_ = flow.Close()
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.flows, client.String())
	}()
	buffer := make([]byte, largest)
	for {
		_ = flow.SetReadDeadline(time.Now().Add(idle))
		n, err := flow.Read(buffer)
		if err != nil {
			return
		}
		if _, err := d.socket.WriteTo(buffer[:n], client); err != nil {
			return
		}
	}
}
