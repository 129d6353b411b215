// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package clustermesh

import (
	"fmt"
	"math"
	"sync"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// State is what is known of an object of a remote cluster.
type State int

const (
	// Unknown: the cluster has not been read, or the object cannot be decoded. What follows from it stays as it is.
	Unknown State = iota
	// Absent: the cluster does not publish it.
	Absent
	// Present: the object is known.
	Present
)

// Change is a change of the objects of a cluster.
type Change struct {
	Cluster string
	// Key is the object; the zero key is all of the cluster's.
	Key slim.Key
}

// Objects are the objects of one kind that remote clusters publish. It is safe for concurrent use.
type Objects[T any] struct {
	codec codec[T]
	most  int // of a cluster, 0 for any number
	// mostBytes is how many bytes the objects of a cluster may need together, 0 for any number.
	mostBytes int

	mu        sync.RWMutex
	clusters  map[string]*published
	observers map[*func(Change)]struct{}
}

// published are the objects of one cluster.
type published struct {
	complete bool // all have been read
	objects  map[slim.Key]object
	bytes    int // that the objects need
	// left is how many values were left out, as there were too many objects: those of as many objects at most. Until a listing is complete
	// those of before it count, too: what is left out must not be absent for a moment.
	left    int
	listing bool
	listed  int // that were left out in this listing
}

// object has the last value that could be decoded.
type object struct {
	packed     string // "" for none
	size       int    // as sizeOf has it
	unreadable bool   // the latest value is. Its error is not kept: it may have all of the value's text.
	unseen     bool   // since the listing began
}

const (
	// partOfMemory is what the objects of one kind of a cluster may have of the memory of the process. What duties make of them is larger.
	partOfMemory = 8
	// partOfValue is what one value may have of that when it is decoded.
	partOfValue = 4
	// objectSize is more than an object needs, without its value and the texts of its key.
	objectSize = 384
)

// sizeOf is how many bytes an object needs at most. An allocation is up to a quarter larger than what it is for.
func sizeOf(key slim.Key, packed []byte) int {
	texts := len(key.Namespace) + len(key.Name) + len(packed)
	return objectSize + texts + texts/4
}

// mostBytes is how many bytes the objects of one kind of a cluster may need in a process with a limit to its memory, 0 for any number.
func mostBytes(limit int64) int {
	if limit <= 0 || limit == math.MaxInt64 {
		return 0
	}
	return int(limit / partOfMemory)
}

func newObjects[T any](c codec[T], most, mostBytes int) *Objects[T] {
	return &Objects[T]{codec: c, most: most, mostBytes: mostBytes, clusters: map[string]*published{}, observers: map[*func(Change)]struct{}{}}
}

// Get returns the object of a cluster. It is decoded for the caller.
func (o *Objects[T]) Get(cluster string, key slim.Key) (*T, State) {
	packed, state := o.find(cluster, key)
	if state != Present {
		return nil, state
	}
	object, err := o.codec.unpack(cluster, key, packed)
	if err != nil { // it was packed here
		return nil, Unknown
	}
	return object, Present
}

// find returns the packed object of a cluster.
func (o *Objects[T]) find(cluster string, key slim.Key) (string, State) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := o.clusters[cluster]
	if p == nil || !p.complete {
		return "", Unknown
	}
	found, exists := p.objects[key]
	switch {
	case !exists && p.left > 0: // it may be one that was left out
		return "", Unknown
	case !exists:
		return "", Absent
	case found.packed == "":
		return "", Unknown
	}
	return found.packed, Present
}

// Keys returns the keys of all objects, of all clusters.
func (o *Objects[T]) Keys() map[slim.Key]bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	keys := map[slim.Key]bool{}
	for _, p := range o.clusters {
		for key := range p.objects {
			keys[key] = true
		}
	}
	return keys
}

// Observe calls f for each change from now on, until stop is called. f must not block, and may be called concurrently.
func (o *Objects[T]) Observe(f func(Change)) (stop func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := &f
	o.observers[id] = struct{}{}
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.observers, id)
	}
}

// isComplete reports whether all objects of a cluster have been read.
func (o *Objects[T]) isComplete(cluster string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := o.clusters[cluster]
	return p != nil && p.complete
}

// count returns the number of objects of a cluster, and how many of them cannot be decoded.
func (o *Objects[T]) count(cluster string) (n, unreadable int) {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := o.clusters[cluster]
	if p == nil {
		return 0, 0
	}
	for _, one := range p.objects {
		if one.unreadable {
			unreadable++
		}
	}
	return len(p.objects), unreadable
}

// change applies a change, and notifies the observers unless it reports that there is nothing to tell.
func (o *Objects[T]) change(c Change, apply func(*published) (changed bool)) {
	o.mu.Lock()
	p := o.clusters[c.Cluster]
	if p == nil {
		p = &published{objects: map[slim.Key]object{}}
		o.clusters[c.Cluster] = p
	}
	var observers []func(Change)
	if apply(p) {
		for f := range o.observers {
			observers = append(observers, *f)
		}
	}
	o.mu.Unlock()
	for _, f := range observers {
		f(c)
	}
}

// begin begins a listing: what it does not have is gone when it is complete.
func (o *Objects[T]) begin(cluster string) {
	o.change(Change{Cluster: cluster}, func(p *published) bool {
		for key, one := range p.objects {
			one.unseen = true
			p.objects[key] = one
		}
		p.listing, p.listed = true, 0
		return false
	})
}

// complete ends a listing.
func (o *Objects[T]) complete(cluster string) {
	o.change(Change{Cluster: cluster}, func(p *published) bool {
		changed := !p.complete
		for key, one := range p.objects {
			if one.unseen {
				p.drop(key)
				changed = true
			}
		}
		if p.listing {
			changed = changed || p.left > 0 && p.listed == 0 // what was unknown is absent
			p.left, p.listing = p.listed, false
		}
		p.complete = true
		return changed
	})
}

// set sets an object. One that cannot be decoded keeps its last value, and one that is too many is left out.
func (o *Objects[T]) set(cluster string, key slim.Key, value []byte) error {
	if o.leaveOut(cluster, key, sizeOf(key, nil)) {
		return nil
	}
	packed, err := o.codec.pack(cluster, key, value, o.mostBytes/partOfValue)
	if err == nil && o.leaveOut(cluster, key, sizeOf(key, packed)) {
		return nil
	}
	o.change(Change{cluster, key}, func(p *published) bool {
		is, was := object{packed: string(packed), size: sizeOf(key, packed)}, p.objects[key]
		if grows := is.size - was.size; err == nil && grows > 0 && o.mostBytes > 0 && p.bytes+grows > o.mostBytes {
			err = fmt.Errorf("it needs %d bytes, and with them the values of the cluster would have more than %d together", is.size, o.mostBytes)
		}
		if err != nil {
			is = object{was.packed, max(was.size, sizeOf(key, nil)), true, false}
		}
		p.drop(key)
		p.objects[key], p.bytes = is, p.bytes+is.size
		return p.complete
	})
	return err
}

// drop removes an object.
func (p *published) drop(key slim.Key) {
	p.bytes -= p.objects[key].size
	delete(p.objects, key)
}

// leaveOut reports whether an object of some bytes is left out, as the cluster has too many.
func (o *Objects[T]) leaveOut(cluster string, key slim.Key, size int) (left bool) {
	o.change(Change{Cluster: cluster}, func(p *published) bool {
		if _, has := p.objects[key]; !has && (o.most > 0 && len(p.objects) >= o.most || o.mostBytes > 0 && p.bytes+size > o.mostBytes) {
			p.left++
			p.listed++
			left = true
		}
		return false // what it was before stays
	})
	return left
}

// leftOut is how many values of a cluster were left out.
func (o *Objects[T]) leftOut(cluster string) int {
	o.mu.RLock()
	defer o.mu.RUnlock()
	if p := o.clusters[cluster]; p != nil {
		return p.left
	}
	return 0
}

// fitsMore reports whether some of what was left out of a cluster may fit now.
func (o *Objects[T]) fitsMore(cluster string) bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	p := o.clusters[cluster]
	return p != nil && p.complete && p.left > 0 && (o.most == 0 || len(p.objects) < o.most) && (o.mostBytes == 0 || p.bytes < o.mostBytes/4*3)
}

// removeLeft notes that an object that was left out is gone, and reports whether there was one.
func (o *Objects[T]) removeLeft(cluster string, key slim.Key) (wasLeft bool) {
	o.change(Change{Cluster: cluster}, func(p *published) bool {
		if _, has := p.objects[key]; !has && p.left > 0 && !p.listing {
			p.left--
			wasLeft = true
		}
		return wasLeft && p.left == 0 && p.complete // what is unknown is absent now
	})
	return wasLeft
}

// remove removes an object that the cluster has deleted.
func (o *Objects[T]) remove(cluster string, key slim.Key) {
	if o.removeLeft(cluster, key) {
		return
	}
	o.change(Change{cluster, key}, func(p *published) bool {
		p.drop(key)
		return p.complete
	})
}

// setNone records that a cluster publishes nothing.
func (o *Objects[T]) setNone(cluster string) {
	o.change(Change{Cluster: cluster}, func(p *published) bool {
		changed := !p.complete || len(p.objects) > 0
		p.complete, p.objects, p.bytes, p.left = true, map[slim.Key]object{}, 0, 0
		return changed
	})
}

// forget forgets a cluster that is no longer configured.
func (o *Objects[T]) forget(cluster string) {
	o.change(Change{Cluster: cluster}, func(*published) bool {
		delete(o.clusters, cluster)
		return true
	})
}
