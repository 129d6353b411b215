// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package faultproxy

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

const (
	chunkSize = 32 << 10
	// readAhead bounds what a direction of a connection holds in memory, in
	// chunks. It is what lets latency and throughput be independent.
	readAhead = 128
)

// conn joins a client's connection to one of the backend.
type conn struct {
	front, back net.Conn
	arrived     arrival
	done        chan struct{} // closed by close
	once        sync.Once
}

// arrival is when the newest byte that was delivered had been read from its source.
type arrival struct{ nanoseconds atomic.Int64 }

func (a *arrival) set(t time.Time) { a.nanoseconds.Store(t.UnixNano()) }
func (a *arrival) get() time.Time  { return time.Unix(0, a.nanoseconds.Load()) }

// close ends both sides, the client's with RST if reset.
func (c *conn) close(reset bool) {
	c.once.Do(func() {
		close(c.done)
		if reset {
			setReset(c.front)
			setReset(c.back)
		}
		c.front.Close()
		c.back.Close()
	})
}

// setReset makes Close send RST. It has no meaning for a pipe, and an error
// means that the connection is dead already.
func setReset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
}

// run pumps both directions until the connection is over.
func (c *conn) run(l *link, up, down *atomic.Int64) {
	pumps := []pump{
		{conn: c, link: l, side: upSide, src: c.front, dst: c.back, moved: up, arrived: &c.arrived, reset: make(chan struct{})},
		{conn: c, link: l, side: downSide, src: c.back, dst: c.front, moved: down, arrived: &arrival{}, reset: make(chan struct{})},
	}
	var wg sync.WaitGroup
	for _, p := range pumps {
		queue := make(chan chunk, readAhead)
		wg.Go(func() { p.read(queue) })
		wg.Go(func() { p.deliver(queue) })
	}
	wg.Wait()
	c.close(false)
}

func upSide(l control.Link) control.Direction   { return l.Up }
func downSide(l control.Link) control.Direction { return l.Down }

// chunk is what one read returned.
type chunk struct {
	data    []byte
	arrived time.Time
	luck    float64 // in [0,1): its share of the jitter
}

// pump moves bytes in one direction: one goroutine reads ahead, another delivers
// as the link allows.
type pump struct {
	conn     *conn
	link     *link
	side     func(control.Link) control.Direction
	src, dst net.Conn
	moved    *atomic.Int64
	arrived  *arrival
	reset    chan struct{} // closed when the source has reset its connection
}

func (p pump) read(queue chan<- chunk) {
	defer close(queue)
	buf := make([]byte, chunkSize)
	for {
		n, err := p.src.Read(buf)
		if n > 0 {
			next := chunk{append([]byte(nil), buf[:n]...), time.Now(), rand.Float64()}
			select {
			case queue <- next:
			case <-p.conn.done:
				return
			}
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				close(p.reset)
			}
			return
		}
	}
}

// deliver writes what was read. The end of the source travels through the link
// like a byte: a peer behind a black hole does not see it.
func (p pump) deliver(queue <-chan chunk) {
	var meter meter
	for next := range queue {
		if !p.await(next) {
			return
		}
		state, changed := p.link.get()
		allowed, cut := meter.allow(p.side(state), changed, len(next.data))
		p.moved.Add(int64(allowed)) // before the peer can tell
		p.arrived.set(next.arrived)
		n, err := p.dst.Write(next.data[:allowed])
		if cut {
			p.conn.close(true)
			return
		}
		if err != nil {
			p.conn.close(false)
			return
		}
		if !p.pace(n) {
			return
		}
	}
	if p.await(chunk{arrived: time.Now()}) {
		p.finish()
	}
}

// finish passes the end of the source on.
func (p pump) finish() {
	if tcp, ok := p.dst.(*net.TCPConn); ok {
		// An error means that the connection is dead already.
		_ = tcp.CloseWrite()
		return
	}
	p.conn.close(false)
}

// await returns once the link lets a chunk through, false if the connection is
// over. What a black hole holds is lost if its source resets the connection
// meanwhile: it is not sent again.
func (p pump) await(next chunk) bool {
	held := false
	for {
		state, changed := p.link.get()
		side := p.side(state)
		if held && !side.BlackHole && isClosed(p.reset) {
			p.conn.close(true)
			return false
		}
		held = side.BlackHole
		due := next.arrived.Add(side.Delay + time.Duration(next.luck*float64(side.Jitter)))
		var timer <-chan time.Time
		if !side.BlackHole {
			wait := time.Until(due)
			if wait <= 0 {
				return !isClosed(p.conn.done)
			}
			timer = time.After(wait)
		}
		select {
		case <-timer:
		case <-changed:
		case <-p.conn.done:
			return false
		}
	}
}

// pace spends the time that n bytes take under the link's bandwidth limit.
func (p pump) pace(n int) bool {
	state, changed := p.link.get()
	limit := p.side(state).BytesPerSecond
	if limit == 0 {
		return true
	}
	select {
	case <-time.After(time.Duration(float64(n) / float64(limit) * float64(time.Second))):
		return true
	case <-changed:
		return true
	case <-p.conn.done:
		return false
	}
}

// meter counts delivered bytes since the link's state was set.
type meter struct {
	since <-chan struct{}
	used  int64
}

// allow reports how many of n bytes may still pass and whether the connection is
// to be cut behind them.
func (m *meter) allow(side control.Direction, since <-chan struct{}, n int) (allowed int, cut bool) {
	if m.since != since {
		m.since, m.used = since, 0
	}
	m.used += int64(n)
	if side.CutAfter == 0 || m.used < side.CutAfter {
		return n, false
	}
	return max(0, n-int(m.used-side.CutAfter)), true
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
