// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package mcsapi

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// noPods is a selector that selects no pods. A derived Service has it for some seconds, between another selector and none: Kubernetes
// leaves what it has made for a Service that loses its selector, EndpointSlices and Endpoints, and mirrors the latter from then on.
// With this one it takes the endpoints out of both.
var noPods = map[string]string{"skep.dev/endpoints": "copied"}

// emptyPause is how long the EndpointSlices of Kubernetes are empty before the selector goes. It makes Endpoints at the same time, which the
// role of the operator does not allow to read.
const emptyPause = 5 * time.Second

// wantedSelector is the selector that the derived Service is to have in the end.
func (s *state) wantedSelector() map[string]string {
	if s.published == nil || s.copiesAll() {
		return nil
	}
	return s.service.Spec.Selector.Map()
}

// nextSelector is the selector that the derived Service gets now. One that is to have none keeps its own until the copies of EndpointSlices
// are seen: no endpoint is missing meanwhile.
func (s *state) nextSelector(d *corev1.Service) map[string]string {
	want := s.wantedSelector()
	if len(want) > 0 || s.derived == nil || !s.isOwned() {
		return want
	}
	has := s.derived.Spec.Selector.Map()
	switch {
	case len(has) == 0 && !s.isMirrored(), maps.Equal(has, noPods) && s.isEmptied:
		return nil
	case len(has) > 0 && !maps.Equal(has, noPods) && !s.hasAllCopies(d):
		return has
	}
	return noPods
}

// hasAllCopies reports whether all copies that are wanted were seen as they are to be.
func (s *state) hasAllCopies(d *corev1.Service) bool {
	if !s.copiesSlices() {
		return true
	}
	p := s.planCopies(d)
	return s.local.isKnown && len(p.missing)+len(p.changed) == 0
}

// isMirrored reports whether Kubernetes mirrors endpoints that the derived Service had when it lost its selector.
func (s *state) isMirrored() bool {
	return slices.ContainsFunc(s.local.kubernetes, func(of *endpointSlice) bool { return of.manager() == mirroringManager && of.mayHaveEndpoints() })
}

// isServed reports whether the EndpointSlices that Kubernetes makes by the selector have all endpoints that are ready and that it has made
// for the Service: then copies are not needed any more. It makes one at least for each of the two, with or without endpoints.
func (s *state) isServed() bool {
	if len(s.local.copies) == 0 {
		return true
	}
	isMade := func(of *endpointSlice) bool { return of.manager() == kubernetesManager }
	if !slices.ContainsFunc(s.local.sources, isMade) || !slices.ContainsFunc(s.local.kubernetes, isMade) {
		return false
	}
	missing := map[string]bool{}
	for address := range readyOf(s.local.sources) {
		missing[address] = true
	}
	for address := range readyOf(s.local.kubernetes) {
		delete(missing, address)
	}
	return s.local.isKnown && len(missing) == 0
}

// readyOf are the addresses of endpoints that are ready, in EndpointSlices that Kubernetes has made by a selector.
func readyOf(all []*endpointSlice) map[string]bool {
	addresses := map[string]bool{}
	for _, of := range all {
		if of.manager() != kubernetesManager {
			continue
		}
		for _, e := range of.Endpoints {
			if isReady(e) {
				for _, address := range e.Addresses {
					addresses[address] = true
				}
			}
		}
	}
	return addresses
}

// isReady reports whether an endpoint is ready, as it also is when that is not known.
func isReady(e discoveryv1.Endpoint) bool { return e.Conditions.Ready == nil || *e.Conditions.Ready }

// awaitEmpty decides whether Kubernetes has taken all endpoints out of what it has made, and returns when to look again otherwise; 0 means
// with the next change.
func (c *controller) awaitEmpty(s *state) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.derived == nil || !s.local.isKnown || !maps.Equal(s.derived.Spec.Selector.Map(), noPods) || slices.ContainsFunc(s.local.kubernetes, (*endpointSlice).mayHaveEndpoints) {
		delete(c.emptied, s.key)
		return 0
	}
	since, known := c.emptied[s.key]
	if !known {
		since = time.Now()
		c.emptied[s.key] = since
	}
	rest := max(0, emptyPause-time.Since(since))
	if s.isEmptied = rest == 0; c.Deps.Plan != nil { // in a dry run Kubernetes does nothing
		return 0
	}
	return rest
}
