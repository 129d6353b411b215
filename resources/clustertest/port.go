// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustertest

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// FreePort is a port for a program that cannot choose one itself, or whose address has
// to be known before it runs; see FreePorts.
func FreePort(tb testing.TB) int {
	tb.Helper()
	return FreePorts(tb, 1)[0]
}

// FreePorts are n different ports of localhost without a listener. They are below those
// that the kernel gives to connections, and belong to the test until it ends: each has a
// lock that every test process asks for.
func FreePorts(tb testing.TB, n int) (ports []int) {
	tb.Helper()
	const first, count = 20_000, 10_000
	for i := 0; len(ports) < n; i++ {
		if i == count {
			tb.Fatalf("no ports are free from %d on", first)
		}
		if port := first + (os.Getpid()+i)%count; reserve(tb, port) {
			ports = append(ports, port)
		}
	}
	return ports
}

// reserve locks a port until the test ends, unless another test has it, or a listener.
func reserve(tb testing.TB, port int) bool {
	tb.Helper()
	lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprint("skep-port-", port)), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		tb.Fatal(err)
	}
	if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		lock.Close()
		return false
	}
	tb.Cleanup(func() { lock.Close() })
	l, err := net.Listen("tcp", fmt.Sprint("localhost:", port))
	if err != nil {
		return false
	}
	l.Close()
	return true
}
