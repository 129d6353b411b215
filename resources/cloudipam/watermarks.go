// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import v2 "github.com/skep-operator/skep/resources/api/v2"

// defaultPreAllocate is how many free addresses a node has if nothing else is said.
const defaultPreAllocate = 8

// watermarks are what bounds the number of addresses of a node, and how many it has.
type watermarks struct {
	available int // addresses that its pods can use, used or not
	used      int

	preAllocate  int
	minAllocate  int
	maxAllocate  int // 0: no limit
	maxAboveMark int
}

// newWatermarks are those of a spec under the limits of the instance.
func newWatermarks(spec *v2.IPAMSpec, l Limits) watermarks {
	w := watermarks{
		preAllocate: spec.PreAllocate, minAllocate: max(0, spec.MinAllocate), maxAllocate: spec.MaxAllocate, maxAboveMark: max(0, spec.MaxAboveWatermark),
	}
	if w.preAllocate <= 0 {
		w.preAllocate = defaultPreAllocate
	}
	if w.maxAllocate <= 0 {
		w.maxAllocate = l.Addresses
	}
	return w
}

// needed is how many addresses the node lacks.
func (w watermarks) needed() int {
	n := w.preAllocate - (w.available - w.used)
	if w.minAllocate > 0 {
		n = max(n, w.minAllocate-w.available)
	}
	return max(0, w.capped(n))
}

// capped is a number of further addresses, or what max-allocate leaves of it.
func (w watermarks) capped(n int) int {
	if w.maxAllocate > 0 && w.available+n > w.maxAllocate {
		n = w.maxAllocate - w.available
	}
	return n
}

// request is how many addresses are asked for if the node lacks some: for pods that are pending, too.
func (w watermarks) request(pending int) int {
	needed := w.needed()
	return max(0, w.capped(needed+w.maxAboveMark+max(0, pending-needed)))
}

// excess is how many addresses the node does not need.
func (w watermarks) excess() int {
	reserved := w.minAllocate + w.maxAboveMark
	if w.used <= reserved {
		if w.available <= reserved {
			return 0
		}
		if w.used+w.preAllocate <= reserved {
			return w.available - reserved
		}
	}
	return max(0, w.available-w.used-w.preAllocate-w.maxAboveMark)
}
