// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/seedtest"
)

// box is an object that may be large; it can be cut.
type box struct {
	slim.Meta `json:"metadata"`
	slim.Cut  `json:"-"`
	Text      string `json:"text"`
}

// CutDown implements slim.Cutter.
func (b *box) CutDown() { b.Text = "" }

// rock is an object that may be large, and cannot be cut.
type rock struct {
	slim.Meta `json:"metadata"`
	Text      string `json:"text"`
}

// K8S-24: whatever comes, changes and goes in several streams, what is kept whole is within the bounds, and counted; in the end nothing is.
func TestMemoryIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rng := rand.New(rand.NewPCG(seedtest.Seed(t), 0))
		const limit = 14 * 512 << 10
		m := NewMemory(limit)
		streams := []*listing{{}, {}}
		var again atomic.Int64 // is counted by timers
		for _, s := range streams {
			s.again = func() { again.Add(1) }
		}
		kept := map[string]int{} // bytes of what is whole, by stream, namespace and name
		sum := func(namespace string) (bytes int) {
			for id, size := range kept {
				if namespace == "" || strings.Contains(id, " "+namespace+" ") {
					bytes += size
				}
			}
			return bytes
		}
		for range 3000 {
			s, b := rng.IntN(2), &box{}
			namespace := fmt.Sprint("n", rng.IntN(5))
			b.Namespace, b.Name = slim.MakeString(namespace), fmt.Sprint("o", rng.IntN(8))
			id := fmt.Sprint(s, " ", namespace, " ", b.Name)
			if rng.IntN(4) == 0 {
				m.remove(streams[s], b.Key())
				delete(kept, id)
				continue
			}
			size := rng.IntN(5) * 60 << 10
			before := kept[id]
			b.Text = strings.Repeat("x", size)
			now := slim.SizeOf(b)
			m.fit(streams[s], b, size)
			delete(kept, id)
			switch {
			case b.IsCut() && before >= now:
				t.Fatalf("%s is cut, which was whole and is no larger", id)
			case !b.IsCut() && now >= leastLarge:
				kept[id] = now
			}
			if got := sum(namespace); got > m.namespace {
				t.Fatalf("%s has %d bytes of %d", namespace, got, m.namespace)
			}
			if most := m.all + 5*m.least; sum("") > most || m.used != sum("") {
				t.Fatalf("%d bytes of %d are kept, %d are counted", sum(""), most, m.used)
			}
		}
		m.listed(streams[0])
		m.retain(streams[0], func(slim.Key) bool { return false })
		m.removeAll(streams[1])
		if m.used != 0 || m.cut != 0 || m.count.Load() != 0 || len(m.of) != 0 {
			t.Errorf("in the end there are %d bytes, %d are cut, of %d in %d namespaces", m.used, m.cut, m.count.Load(), len(m.of))
		}
		time.Sleep(time.Hour)
		if n := again.Load(); n > 2 {
			t.Errorf("%d lists for two streams", n)
		}
	})
}

// What follows a list is counted though it is not in the stream yet.
func TestMemoryAfterAList(t *testing.T) {
	m, s := NewMemory(14*512<<10), &listing{again: func() {}}
	put := func(name string) {
		b := &box{Text: strings.Repeat("x", 100<<10)}
		b.Namespace, b.Name = slim.MakeString("shop"), name
		m.fit(s, b, len(b.Text))
	}
	put("gone")
	put("listed")
	m.listed(s)
	put("later")
	m.retain(s, func(key slim.Key) bool { return key.Name == "listed" })
	if m.count.Load() != 2 || m.used < 200<<10 {
		t.Errorf("%d objects with %d bytes", m.count.Load(), m.used)
	}
}

// What cannot be cut is kept and counted for its namespace alone, what is in no namespace is not counted, and without a limit nothing is.
func TestMemoryWithoutBound(t *testing.T) {
	m, s := NewMemory(14*100<<10), &listing{again: func() {}}
	r := &rock{Text: strings.Repeat("x", 200<<10)}
	r.Name = "global"
	if m.fit(s, r, len(r.Text)); m.used != 0 {
		t.Errorf("%d bytes of an object in no namespace", m.used)
	}
	r.Namespace = slim.MakeString("shop")
	for range 3 { // it changes
		if m.fit(s, r, len(r.Text)); r.Text == "" || m.of["shop"].used < 200<<10 || m.used != 0 || m.cut != 0 {
			t.Errorf("%d bytes of what cannot be cut, %d for all, %d are cut", m.of["shop"].used, m.used, m.cut) // others are not kept out by it
		}
	}
	if m.remove(s, r.Key()); m.used != 0 || len(m.of) != 0 {
		t.Errorf("%d bytes are left in %d namespaces", m.used, len(m.of))
	}
	for _, limit := range []int64{0, -1, math.MaxInt64} {
		none := NewMemory(limit)
		b := &box{Text: r.Text}
		b.Namespace = r.Namespace
		if none.fit(s, b, len(b.Text)); none != nil || b.IsCut() {
			t.Errorf("limit %d: it has a bound", limit)
		}
		none.remove(s, b.Key())
		none.listed(s)
		none.retain(s, nil)
		none.removeAll(s)
	}
}
