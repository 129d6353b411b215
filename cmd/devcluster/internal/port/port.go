// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package port

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Port is a free port of 127.0.0.1 that stays reserved until Close.
//
// The reservation is a socket that is bound with SO_REUSEPORT and never
// listens: the kernel answers connections with RST, gives the port to no other
// process, and permits listeners of the same user with SO_REUSEPORT.
type Port struct {
	fd     int
	number int
}

// Reserve finds a free port.
func Reserve() (*Port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("reserve a loopback port: open a socket: %w", err)
	}
	p := &Port{fd: fd}
	if err := p.bind(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("reserve a loopback port: %w", err)
	}
	return p, nil
}

func (p *Port) bind() error {
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	if err := unix.Bind(p.fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return fmt.Errorf("bind: %w", err)
	}
	name, err := unix.Getsockname(p.fd)
	if err != nil {
		return fmt.Errorf("read the port: %w", err)
	}
	p.number = name.(*unix.SockaddrInet4).Port
	return nil
}

// Address is host:port.
func (p *Port) Address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number))
}

// Listen listens on the reserved port. Closing the listener leaves the
// reservation, so that the port refuses again.
func (p *Port) Listen() (net.Listener, error) {
	lc := net.ListenConfig{Control: reusePort}
	ln, err := lc.Listen(context.Background(), "tcp4", p.Address())
	if err != nil {
		return nil, fmt.Errorf("listen on the reserved port: %w", err)
	}
	return ln, nil
}

func reusePort(_, _ string, c syscall.RawConn) error {
	var sockErr error
	err := c.Control(func(fd uintptr) {
		sockErr = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	})
	if err != nil {
		return err
	}
	return sockErr
}

// Close gives the port back.
func (p *Port) Close() error { return unix.Close(p.fd) }
