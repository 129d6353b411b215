// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package stream

import (
	"time"

	"github.com/skep-operator/skep/resources/stream/internal/changelog"
	"github.com/skep-operator/skep/resources/stream/internal/conditions"
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

// NotServed reports whether the API server does not serve the resource: its CustomResourceDefinition does not exist, or does not
// have the version, or the server is starting.
func (s State) NotServed() bool {
	_, waits := s.Wrong[conditions.Resource]
	return waits
}

// SubscriberState is what a subscriber is doing.
type SubscriberState struct {
	Name       string
	Pending    int // keys with changes that it has not been given
	Processing int // changes of the batch that it works on
}

// add fills in the state of the change list.
func (s *State) add(c changelog.State) {
	s.Synced, s.Revision, s.Objects = c.Synced, c.Revision, c.Objects
	s.Wrong, s.Unreadable, s.Indexes = c.Wrong, c.Unreadable, c.Indexes
	for _, sub := range c.Subscribers {
		s.Subscribers = append(s.Subscribers, SubscriberState(sub))
	}
}
