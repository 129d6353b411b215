// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/operatortest"
)

const again = "changes again and again"

// MESH-21: a second after the first change, then twice as long each time.
func TestPauseAfterChanges(t *testing.T) {
	for changes, want := range []time.Duration{1, 1, 2, 4, 8, 16, 32, 64, 128, 128, 128} {
		if got := changesPause(time.Second, changes); got != want*time.Second {
			t.Errorf("%d changes: %s", changes, got)
		}
	}
}

// MESH-21, K9 of the contract's tenants.md: a configuration that is refused in between ends the brake no sooner.
func TestConfigurationThatIsRefusedInBetween(t *testing.T) {
	w, a := newWorld(t), newPeer(t, "a", 2).publish("")
	a.serve("state", web, "10.2.0.1")
	w.file("a", a.Endpoints()[0])
	w.pause = 50 * time.Millisecond
	w.start("--clustermesh-sync-timeout=2s")
	w.awaitBackends("a", "10.2.0.1")
	const refused = "it has no ID"
	for range 10 {
		named := false
		a.id = 0
		a.publish("")
		w.eventually("it is refused", func() bool {
			text := w.Degraded("clustermesh.a")
			named = named || strings.Contains(text, again)
			return strings.Contains(text, refused)
		})
		if named {
			return
		}
		a.id = 2
		a.publish("")
		w.eventually("it is accepted", func() bool { return !strings.Contains(w.Degraded("clustermesh.a"), refused) })
	}
	t.Error("it is not named")
}

// MESH-21, MESH-8: a cluster whose data are replaced is read as rarely as one whose configuration changes. That they are is seen with the next check, up to
// five seconds later.
func TestDataThatAreReplaced(t *testing.T) {
	w, a, b := newWorld(t), newPeer(t, "a", 2).publish(""), newPeer(t, "a", 3).publish("")
	a.serve("state", web, "10.2.0.1")
	b.serve("state", web, "10.2.0.2")
	a.mark(kvstore.ServicesPrefix)
	b.mark(kvstore.ServicesPrefix)
	etcd := newSwitch(t, a)
	w.file("a", "http://"+etcd.listener.Addr().String())
	w.pause = 200 * time.Millisecond
	w.start()
	w.awaitBackends("a", "10.2.0.1")
	for range fewChanges {
		a.id = 5 - a.id
		a.publish("")
		w.eventually("it is read again", func() bool { return w.status("a").Config.ClusterID == int64(a.id) })
	}
	if text := w.Degraded("clustermesh.a"); strings.Contains(text, again) {
		t.Errorf("after few changes: %s", text)
	}
	etcd.lead(b)
	operatortest.EventuallyWithin(t, 30*time.Second, "it is named", func() bool { return strings.Contains(w.Degraded("clustermesh.a"), again) })
	w.awaitBackends("a", "10.2.0.2")
}

// switchProxy is an address at which one etcd can replace another.
type switchProxy struct {
	listener net.Listener

	mu     sync.Mutex
	target string
	conns  []net.Conn
}

func newSwitch(t *testing.T, to *peer) *switchProxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &switchProxy{listener: listener}
	s.lead(to)
	var running sync.WaitGroup
	running.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			s.connect(near, &running)
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.lead(to)
		running.Wait()
	})
	return s
}

// lead sends new connections to an etcd, and cuts those that there are.
func (s *switchProxy) lead(to *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.target = strings.TrimPrefix(to.Endpoints()[0], "http://")
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.conns = nil
}

func (s *switchProxy) connect(near net.Conn, running *sync.WaitGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	far, err := net.Dial("tcp", s.target)
	if err != nil {
		_ = near.Close()
		return
	}
	s.conns = append(s.conns, near, far)
	for _, way := range [][2]net.Conn{{near, far}, {far, near}} {
		running.Go(func() {
			_, _ = io.Copy(way[0], way[1])
			_ = way[0].Close()
			_ = way[1].Close()
		})
	}
}
