// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package changelog

import (
	"slices"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// Get returns the newest state of a key, if it exists.
func (l *Log[P]) Get(key slim.Key) (obj P, exists bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Current(key)
}

// Len returns the number of objects.
func (l *Log[P]) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.live
}

// Objects returns all objects in the order of their last change.
func (l *Log[P]) Objects() []P {
	l.mu.Lock()
	defer l.mu.Unlock()
	objs := make([]P, 0, l.live)
	for n := l.head; n != nil; n = n.next {
		if !n.deleted {
			objs = append(objs, n.obj)
		}
	}
	return objs
}

// Revision returns the revision up to which the list is complete.
func (l *Log[P]) Revision() slim.Revision {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision
}

// State is what a list holds, for stream.State.
type State struct {
	Synced      bool
	Revision    slim.Revision
	Objects     int
	Wrong       map[string]string
	Unreadable  []slim.Key
	Indexes     []string
	Subscribers []SubscriberState
}

// SubscriberState is as stream.SubscriberState.
type SubscriberState struct {
	Name       string
	Pending    int
	Processing int
}

// State returns the state of the list.
func (l *Log[P]) State() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := State{
		Synced: l.IsSynced(), Revision: l.revision, Objects: l.live,
		Unreadable: l.unreadableKeys(""), Wrong: l.health.List(),
	}
	for index := range l.indexes {
		s.Indexes = append(s.Indexes, index.String())
	}
	slices.Sort(s.Indexes)
	for _, sub := range l.subs {
		s.Subscribers = append(s.Subscribers, SubscriberState{Name: sub.Name, Pending: sub.pending, Processing: sub.processing})
	}
	return s
}
