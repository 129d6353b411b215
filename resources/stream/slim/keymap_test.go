// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"testing"
)

// A KeyMap does what a map does.
func TestKeyMapIsAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var m KeyMap[int]
	want := map[Key]int{}
	for i := range 20_000 {
		key := Key{Namespace: fmt.Sprint("n", r.IntN(4)), Name: fmt.Sprint("o", r.IntN(40))}
		if r.IntN(3) > 0 && i%3000 < 2000 {
			m.Set(key, i)
			want[key] = i
		} else {
			m.Delete(key)
			delete(want, key)
		}
		got, ok := m.Get(key)
		if known, there := want[key]; got != known || ok != there || m.Len() != len(want) {
			t.Fatalf("step %d: %v is %d, %t of %d keys, want %d, %t of %d", i, key, got, ok, m.Len(), known, there, len(want))
		}
		if i%500 == 0 {
			if got := maps.Collect(m.All()); !maps.Equal(got, want) {
				t.Fatalf("step %d: all are %v, want %v", i, got, want)
			}
		}
	}
	for key := range m.All() {
		m.Delete(key)
	}
	if m.Len() != 0 || len(m.namespaces) != 0 {
		t.Errorf("%d keys in %d namespaces are left", m.Len(), len(m.namespaces))
	}
}

// It is there for the memory that it saves.
func TestKeyMapIsSmall(t *testing.T) {
	const size = 16_000
	var keys []Key
	for i := range size {
		keys = append(keys, Key{Namespace: fmt.Sprint("n", i%50), Name: fmt.Sprint("o", i)})
	}
	small := allocated(func() any {
		var m KeyMap[*int]
		for _, key := range keys {
			m.Set(key, nil)
		}
		return &m
	})
	plain := allocated(func() any {
		m := map[Key]*int{}
		for _, key := range keys {
			m[key] = nil
		}
		return m
	})
	runtime.KeepAlive(keys)
	t.Logf("%d bytes per key, a map %d", small/size, plain/size)
	if small >= plain {
		t.Errorf("%d bytes per key, a map %d", small/size, plain/size)
	}
}

// allocated is how many bytes what f returns keeps.
func allocated(f func() any) uint64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC() // what was left to clean up is gone, too
	runtime.ReadMemStats(&before)
	kept := f()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(kept)
	return after.HeapAlloc - before.HeapAlloc
}
