// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"slices"

	routev3 "github.com/envoyproxy/go-control-plane/envoy/config/route/v3"
	"google.golang.org/protobuf/proto"
)

const (
	// mostTranslated is how many bytes are translated at most, about: more could not be written. It is twice what can, so that those
	// who leave something out know how much.
	mostTranslated = 2 * MaxSize

	// MostPlaces is how many routes are looked at, each once for every host that it has. At least 50 bytes are written for one,
	// unless it is for the same requests as another: this is four times what can be written.
	MostPlaces = 4 * MaxSize / 50

	// leastPlace is what a place counts of which nothing is written: those that are too many are too large, too.
	leastPlace = (mostTranslated + MostPlaces - 1) / MostPlaces
)

// budget is what is left of mostTranslated. What an object has once is multiplied by hosts, listeners and backends: its size
// says nothing of what comes of it, so that work is stopped before it is begun (ENV-40).
type budget int

// spend is an error if a part is larger than what is left.
func (b *budget) spend(bytes int) error {
	if *b -= budget(bytes); *b < 0 {
		return &TooLargeError{Size: mostTranslated, AtLeast: true}
	}
	return nil
}

// The least that is written for a part, beside the texts that it has of its object.
const (
	leastChain   = 50  // of plain HTTP
	leastBackend = 20  // {"name":"","weight":1}
	leastSecret  = 40  // {"name":"//"}, with the namespace of the copies
	leastPort    = 400 // a virtual host and a cluster
)

// tooManyPlaces reports whether routes have more places than are looked at. It ends once it knows.
func (m Model) tooManyPlaces() bool {
	places := 0
	for _, l := range m.HTTP {
		for names := range l.all() {
			if places += max(1, len(names)); places > MostPlaces {
				return true
			}
		}
	}
	return false
}

// check is an error if a part that has at least so many bytes is larger than what is left.
func (b budget) check(least int) error { return b.spend(least) }

// checkHost is check for a host: it returns how many bytes its routes are about, before any of them is made.
func (b budget) checkHost(o Options, hostname string, h *hostRoutes) (expected int, err error) {
	left := b
	err = left.spendHost(o, hostname, h)
	return int(b - left), err
}

// spendHost spends what is written for the routes of a host.
func (b *budget) spendHost(o Options, hostname string, h *hostRoutes) error {
	for _, wider := range h.ahead {
		label := len(`{"name":":authority","stringMatch":{"contains":"","ignoreCase":true}},`) + len(wider.hostname)
		if err := b.spendRoutesOf(o, wider.of, label+o.labelSize(wider.of, wider.hostname)); err != nil {
			return err
		}
	}
	return b.spendRoutesOf(o, h, o.labelSize(h, hostname))
}

// labelSize is the size of what a route matches of a wildcard of which requests replace one label.
func (o Options) labelSize(h *hostRoutes, hostname string) int {
	label := o.oneLabel(h, hostname)
	if !isWildcard(label) {
		return 0
	}
	return len(`{"name":":authority","stringMatch":{"safeRegex":{"regex":"(?i)^[^.]+[.](:[0-9]*)?$"}}},`) + len(label)
}

// spendRoutesOf spends what is written for the routes that a host has itself, and so many bytes more for each route of Envoy.
func (b *budget) spendRoutesOf(o Options, h *hostRoutes, each int) error {
	redirected, seen := map[matchKey]bool{}, map[matchKey]bool{}
	each += h.switchesSize()
	for _, r := range h.forced {
		if r.Refused {
			continue
		}
		key := r.request()
		size := max(leastPlace, key.size()) // of one that is not written: what it matches is compared
		if !redirected[key] {
			redirected[key] = true
			size = r.redirectedSize() + each
		}
		if err := b.spend(size); err != nil {
			return err
		}
	}
	for _, r := range h.routes {
		if r.Refused {
			continue
		}
		key := o.request(r.Route)
		size := max(leastPlace, key.size())
		switch {
		case redirected[key]:
		case !seen[key]:
			size = r.size(o) + r.becoming().all()*each
			if own := o.auths.name(r.Auth); slices.Contains(h.filters, own) {
				size -= r.becoming().served * switchSize(own)
			}
		case !o.FirstWins:
			size += backendsSize(r.Backends) // they are joined
		}
		seen[key] = true
		if err := b.spend(size); err != nil {
			return err
		}
	}
	return nil
}

// spendRoutes spends what routes have as they are. It is less than what is written, and ends what sizes do not foresee.
func (b *budget) spendRoutes(all []*routev3.Route) error {
	for _, r := range all {
		if err := b.spend(proto.Size(r)); err != nil {
			return err
		}
	}
	return nil
}
