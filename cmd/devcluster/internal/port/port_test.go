// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package port

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestReservedPortRefusesUntilListened(t *testing.T) {
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	for range 3 {
		if _, err := net.Dial("tcp", p.Address()); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("dial a reserved port: got %v, want connection refused", err)
		}
		ln, err := p.Listen()
		if err != nil {
			t.Fatal(err)
		}
		conn, err := net.Dial("tcp", p.Address())
		if err != nil {
			t.Fatalf("dial a listening port: %v", err)
		}
		conn.Close()
		ln.Close()
	}
}

func TestReservedPortIsGivenToNobodyElse(t *testing.T) {
	p, err := Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()

	if ln, err := net.Listen("tcp4", p.Address()); err == nil {
		ln.Close()
		t.Fatal("a listener without SO_REUSEPORT took the reserved port")
	}
}
