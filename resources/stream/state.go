// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// State is what a stream is doing, for people and metrics.
type State struct {
	Name           string
	Running        bool // it has users, or had some a moment ago
	Synced         bool
	Revision       slim.Revision
	Objects        int
	Users          int               // subscriptions and store handles
	ConnectedSince time.Time         // of the watch; zero: not connected
	Wrong          map[string]string // what degrades it, by name
	Unreadable     []slim.Key
	Indexes        []string
	Subscribers    []SubscriberState // in the order they came
}

// SubscriberState is what a subscriber is doing.
type SubscriberState struct {
	Name           string
	Pending        int    // keys with changes that it has not been given
	InFlight       int    // keys it was given and has not Done
	Retrying       int    // keys that wait for their retry
	Oldest         string // key longest in flight
	OldestInFlight time.Duration
}

// state fills in what the change list knows.
func (c *changes[T]) state(s *State) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.Synced, s.Revision, s.Objects = c.isSynced(), c.revision, c.live
	s.Unreadable = c.unreadableKeys()
	s.Wrong = c.health.list()
	for index := range c.indexes {
		s.Indexes = append(s.Indexes, index.String())
	}
	slices.Sort(s.Indexes)
	for _, sub := range c.subs {
		s.Subscribers = append(s.Subscribers, sub.state())
	}
}

func (s *subscription[T]) state() SubscriberState {
	state := SubscriberState{
		Name: s.name, Pending: s.pending + len(s.ready), InFlight: len(s.flights), Retrying: len(s.due),
	}
	if _, ok := s.flights[s.offered]; ok {
		state.InFlight-- // not received yet
		state.Pending++
	}
	if key, since, ok := s.oldest(); ok {
		state.Oldest, state.OldestInFlight = key, s.changes.now().Sub(since)
	}
	return state
}
