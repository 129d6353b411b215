// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import "slices"

const (
	// mostTranslated is how many bytes are translated at most, about: more could not be written. It is twice what can, so that those
	// who leave something out know how much.
	mostTranslated = 2 * MaxSize

	// MostPlaces is how many routes are looked at, each once for every host that it has. At least 50 bytes are written for one,
	// unless it is for the same requests as another: this is four times what can be written.
	MostPlaces = 4 * MaxSize / 50
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
	leastRoute   = 50  // {"match":{"prefix":"/"},"redirect":{"httpsRedirect":true}}
	leastMatch   = 35  // {"name":"","stringMatch":{"exact":""}}
	leastEdit    = 35  // {"header":{"key":"","value":""}}
	leastBackend = 20  // {"name":"","weight":1}
	leastSecret  = 40  // {"name":"//"}, with the namespace of the copies
	leastPort    = 400 // a virtual host and a cluster
	leastAuth    = 100 // {"":{"@type":"type.googleapis.com/envoy.extensions.filters.http.ext_authz.v3.ExtAuthzPerRoute","disabled":true}}
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

// checkHost is check for a host.
func (b budget) checkHost(o Options, h *hostRoutes) error {
	for _, wider := range h.ahead {
		if err := b.spendHost(o, wider.of); err != nil {
			return err
		}
	}
	return b.spendHost(o, h)
}

func (b *budget) spendHost(o Options, h *hostRoutes) error {
	seen, switches := map[matchKey]bool{}, 0 // by which a route switches off the filters of others
	for _, name := range h.filters[min(1, len(h.filters)):] {
		switches += leastAuth + len(name)
	}
	for _, r := range slices.Concat(h.forced, h.routes) {
		key := r.request()
		size := 0
		switch {
		case !seen[key]:
			size = r.LeastSize() + switches
		case !o.FirstWins:
			size = leastSizeOf(r.Backends) // they are joined
		}
		seen[key] = true
		if err := b.spend(size); err != nil {
			return err
		}
	}
	return nil
}

// LeastSize is how many bytes are written at least for a route at one host.
func (r *Route) LeastSize() int {
	size := leastRoute + len(r.Path.Value) + leastSizeOf(r.Backends) + r.RequestHeaders.leastSize() + r.ResponseHeaders.leastSize()
	for _, m := range slices.Concat(r.Headers, r.Queries) {
		size += leastMatch + len(m.Name) + len(m.Value)
	}
	for _, m := range r.Mirrors {
		size += len(m.cluster())
	}
	return size
}

func leastSizeOf(all []Backend) (size int) {
	for _, b := range all {
		size += leastBackend + len(b.Namespace) + len(b.Name.Name) + b.RequestHeaders.leastSize() + b.ResponseHeaders.leastSize()
	}
	return size
}

func (e *HeaderEdit) leastSize() (size int) {
	if e == nil {
		return 0
	}
	for _, h := range slices.Concat(e.Add, e.Set) {
		size += leastEdit + len(h.Name) + len(h.Value)
	}
	return size
}
