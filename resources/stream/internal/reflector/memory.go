// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	// leastLarge is from how many bytes on an object is large. Of smaller ones only their number counts, for which clusters have quotas.
	leastLarge = 32 << 10
	// leastMessage is from how many bytes on the size of what a message holds is looked at.
	leastMessage = 8 << 10
	// admitPause is how long a stream waits at least until it lists again what it has cut.
	admitPause = 30 * time.Second
)

// Memory is what the large objects of tenants may have in all streams of a process: those of one namespace together, and those of all. An object that
// comes when there is no more is cut down (slim.Cutter), before it is kept, and kept whole once others have gone. Objects that are in no namespace are
// an administrator's, and have no bound. It is safe for concurrent use; nil has no bound.
type Memory struct {
	namespace, all, least int // bytes

	count atomic.Int64 // of large objects, for all that have none
	mu    sync.Mutex
	used  int
	cut   int    // objects
	seq   uint64 // of the last object that was counted
	of    map[string]*share
}

// share is that of a namespace.
type share struct {
	used    int
	objects map[large]held
}

// large is a large object.
type large struct {
	stream *listing
	name   string
}

// held is what a large object has, or would have.
type held struct {
	size int
	cut  bool
	// alone says that it counts for its namespace alone: its type cannot be cut down, and it must not keep the objects of others out.
	alone bool
	seq   uint64
}

// listing is a stream that can read again what it has cut.
type listing struct {
	again func()
	end   uint64      // seq of the last object of the last list; what follows is not in it
	timer *time.Timer // nil: it does not wait; with what follows, under the lock of the Memory
	last  time.Time
}

// The parts of the memory of a process. What duties make of an object is up to four times as large.
const (
	partOfNamespace = 14
	partOfAll       = 9
	partOfLeast     = 200
)

// NewMemory returns what large objects may have in a process with a limit to its memory, in bytes: a fourteenth for those of a namespace, a ninth for
// all, and a little for each namespace also when others have that. Without a limit it is nil.
func NewMemory(limit int64) *Memory {
	if limit <= 0 || limit == math.MaxInt64 {
		return nil
	}
	return &Memory{namespace: int(limit / partOfNamespace), all: int(limit / partOfAll), least: int(limit / partOfLeast), of: map[string]*share{}}
}

// fit cuts an object of a message down if it is large and there is no memory for it.
func (m *Memory) fit(stream *listing, obj any, message int) {
	if m == nil || message < leastMessage && m.count.Load() == 0 {
		return
	}
	meta := slim.MetaOf(obj)
	if meta.Namespace.String() == "" {
		return
	}
	size := 0
	if message >= leastMessage {
		size = slim.SizeOf(obj)
	}
	if size < leastLarge {
		m.remove(stream, meta.Key())
	} else if !m.add(stream, meta.Key(), size) && !slim.CutDown(obj, size) {
		m.keep(stream, meta.Key())
	}
}

// add reports whether there is memory for a large object. What it had before does not count.
func (m *Memory) add(stream *listing, key slim.Key, size int) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of[key.Namespace]
	if s == nil {
		s = &share{objects: map[large]held{}}
		m.of[key.Namespace] = s
	}
	id := large{stream, key.Name}
	was, known := s.objects[id]
	m.release(s, id)
	hasMemory := m.hasMemory(s, size)
	fits := hasMemory || known && !was.cut && size <= was.size // what is kept stays
	m.put(s, id, held{size: size, cut: !fits, alone: fits && !hasMemory && was.alone})
	m.admit()
	return fits
}

func (m *Memory) hasMemory(s *share, size int) bool {
	return s.used+size <= m.namespace && (m.used+size <= m.all || s.used+size <= m.least)
}

// keep counts an object whose type cannot be cut down.
func (m *Memory) keep(stream *listing, key slim.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, id := m.of[key.Namespace], large{stream, key.Name}
	m.put(s, id, held{size: m.release(s, id).size, alone: true})
}

func (m *Memory) put(s *share, id large, h held) {
	m.seq++
	h.seq = m.seq
	s.objects[id] = h
	m.count.Add(1)
	if h.cut {
		m.cut++
		return
	}
	s.used += h.size
	if !h.alone {
		m.used += h.size
	}
}

// release returns what an object had, which is free from now on.
func (m *Memory) release(s *share, id large) held {
	h, known := s.objects[id]
	if !known {
		return h
	}
	delete(s.objects, id)
	m.count.Add(-1)
	if h.cut {
		m.cut--
		return h
	}
	s.used -= h.size
	if !h.alone {
		m.used -= h.size
	}
	return h
}

// remove frees what an object had that is gone, or is no longer large.
func (m *Memory) remove(stream *listing, key slim.Key) {
	if m == nil || m.count.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.of[key.Namespace]
	if s == nil {
		return
	}
	m.release(s, large{stream, key.Name})
	if len(s.objects) == 0 {
		delete(m.of, key.Namespace)
	}
	m.admit()
}

// listed marks the end of a list: what is counted from now on is not in it, and may not be in the stream yet.
func (m *Memory) listed(stream *listing) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	stream.end = m.seq
}

// retain frees what those objects of a stream had that do not exist any more, after a list.
func (m *Memory) retain(stream *listing, exists func(slim.Key) bool) {
	if m == nil || m.count.Load() == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.filter(stream, func(key slim.Key, h held) bool { return h.seq > stream.end || exists(key) })
	m.admit()
}

// removeAll frees what the objects of a stream had that has ended.
func (m *Memory) removeAll(stream *listing) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if stream.timer != nil {
		stream.timer.Stop()
	}
	m.filter(stream, func(slim.Key, held) bool { return false })
	m.admit()
}

func (m *Memory) filter(stream *listing, stays func(slim.Key, held) bool) {
	for namespace, s := range m.of {
		for id, h := range maps.Clone(s.objects) {
			if id.stream == stream && !stays(slim.Key{Namespace: namespace, Name: id.name}, h) {
				m.release(s, id)
			}
		}
		if len(s.objects) == 0 {
			delete(m.of, namespace)
		}
	}
}

// admit has the streams list again that have cut an object for which there is memory now.
func (m *Memory) admit() {
	if m.cut == 0 {
		return
	}
	for _, s := range m.of {
		for id, h := range s.objects {
			if h.cut && m.hasMemory(s, h.size) {
				m.listAgain(id.stream)
			}
		}
	}
}

// listAgain has a stream list again, once in a while.
func (m *Memory) listAgain(stream *listing) {
	if stream.timer != nil {
		return
	}
	stream.timer = time.AfterFunc(max(time.Second, admitPause-time.Since(stream.last)), func() {
		m.mu.Lock()
		stream.timer, stream.last = nil, time.Now()
		m.mu.Unlock()
		stream.again()
	})
}
