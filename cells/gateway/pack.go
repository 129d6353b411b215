// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"errors"
	"fmt"
	"maps"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/skep-operator/skep/cells/gateway/internal/condition"
	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/resources/domain/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// packing is what the configuration of a Gateway goes without so that it fits (GW-54): routes and ListenerSets, which others may add. What
// the Gateway itself has is never left out.
type packing struct {
	limit int               // of the sizes together, 0 while all fit
	out   map[slim.Key]bool // by id
	// parts are the sizes, by id, of what could be left out when the configuration did fit.
	parts map[slim.Key]int
	// routes are the sizes that routes had at all their listeners: some of these may be left out.
	routes map[slim.Key]routeSize
}

const (
	// packings is how often a Gateway is planned again with less. Sizes are known about: the second time fits nearly always.
	packings = 8
	// packingAim is the size that is aimed at, a little less than what fits.
	packingAim = envoy.MaxSize / 100 * 98
)

// leftOut is the reason of what does not fit.
const leftOut = "LeftOut"

func tooLarge(size int, fewer string) condition.Condition {
	return condition.False(leftOut, fmt.Sprintf(
		"It is not served: with its %d bytes the configuration of the Gateway would be larger than the %d bytes that an object may have, and no namespace has more of it: use fewer %s, or another Gateway",
		size, envoy.MaxSize, fewer))
}

// packed is the configuration of a plan.
type packed struct {
	spec     envoy.Encoded
	isEmpty  bool
	problems []envoy.Problem
}

// pack translates a plan. While the result is too large, again plans the Gateway with less.
func pack(s *state, plan *gatewayPlan, o envoy.Options, again func() *gatewayPlan) (*gatewayPlan, packed, error) {
	s.planner.retry(plan, o)
	if s.planner.leaveOut(plan, o) {
		plan = again()
	}
	for n := 1; ; n++ {
		p, err := translate(s, plan, o)
		if err == nil {
			s.planner.fits(plan, o)
		}
		large := new(envoy.TooLargeError)
		if !errors.As(err, &large) || n == packings {
			return plan, p, err
		}
		s.planner.packing.tighten(s.planner.sizes(plan, o).without(s.planner.packing.out), large)
		if !s.planner.leaveOut(plan, o) {
			return plan, p, err // there is nothing more
		}
		plan = again()
	}
}

// translate translates and encodes the model of a plan.
func translate(s *state, plan *gatewayPlan, o envoy.Options) (p packed, err error) {
	t, err := s.translator.Translate(plan.model, o)
	if p.problems, p.isEmpty = t.Problems, t.Empty; err != nil || t.Empty {
		return p, err
	}
	p.spec, err = envoy.Encode(t.Spec)
	return p, err
}

// tighten lowers the limit, since with what is kept the configuration is too large. Where it was not translated to its end, it is about as large as
// the sizes are.
func (p *packing) tighten(kept int, is *envoy.TooLargeError) {
	size := is.Size
	if is.AtLeast {
		size = max(size, kept)
	}
	p.limit = max(1, int(int64(kept)*packingAim/int64(size)))
}

// retry drops the limit if something is gone, or smaller, since it was chosen what is left out: it is that for what there was, and all is tried anew.
func (p *planner) retry(plan *gatewayPlan, o envoy.Options) {
	if p.packing.limit == 0 {
		return
	}
	now := p.sizes(plan, o).byID()
	for id, was := range p.packing.parts {
		if now[id] < was {
			p.packing.limit = 0
			return
		}
	}
}

// fits notes the sizes of a plan with which the configuration fits: what is left out of it, nothing has for other objects.
func (p *planner) fits(plan *gatewayPlan, o envoy.Options) {
	if p.packing.limit > 0 {
		p.packing.parts = p.sizes(plan, o).byID()
	}
}

// byID are the sizes of what can be left out.
func (s sizes) byID() map[slim.Key]int {
	all := make(map[slim.Key]int, len(s.parts))
	for _, part := range s.parts {
		all[part.Object] += part.Size
	}
	return all
}

// leaveOut chooses what the configuration goes without, and reports whether that is something else than before.
func (p *planner) leaveOut(plan *gatewayPlan, o envoy.Options) (changed bool) {
	was := p.packing.out
	p.packing.out = nil
	if p.packing.limit > 0 {
		all := p.sizes(plan, o)
		if p.packing.parts = all.byID(); all.total <= p.packing.limit {
			p.packing.limit = 0 // all fit, as far as is known
		} else {
			p.packing.out = all.leaveOut(p.packing.limit)
		}
	}
	return !maps.Equal(was, p.packing.out)
}

// markLeftOut has the listeners of a ListenerSet that is left out, or cut, serve nothing. Their hosts stay their own.
func (p *planner) markLeftOut(plan *gatewayPlan) {
	for _, set := range plan.sets {
		var why condition.Condition
		switch {
		case set.of.IsCut():
			why = condition.False(leftOut, "It is not served: "+set.of.CutError().Error())
		case p.packing.out[set.of.id()]:
			why = tooLarge(sizeOfListeners(set.listeners).rules, "listeners or certificates")
		default:
			continue
		}
		for _, l := range set.listeners {
			l.LeftOut = &why
		}
	}
}

// withLeftOut is why the listeners of a route that is left out do not serve it, beside those that refuse it. Of one that was planned anew the size is the last one that is known.
func (r *plannedRoute) withLeftOut(refused map[*listener.Listener]*listener.Refusal, last routeSize) map[*listener.Listener]*listener.Refusal {
	why := &listener.Refusal{Condition: tooLarge(max(r.size, last.own), "matches, hostnames or backends")}
	all := maps.Clone(refused)
	if all == nil {
		all = map[*listener.Listener]*listener.Refusal{}
	}
	for _, l := range r.attached {
		all[l] = why
	}
	return all
}

// close keeps the hosts of a route that is left out from wider names, unless there is no space for that, either.
func (to *assembly) close(r *plannedRoute, unserved map[place][]string) {
	if to.out[namesOf(r.of.ID())] {
		return
	}
	for at, names := range r.names {
		unserved[at] = append(unserved[at], names...)
	}
	for _, p := range r.tls {
		to.model.Passthrough = append(to.model.Passthrough, envoy.Passthrough{Source: p.Source, Hostnames: p.Hostnames, Port: p.Port, Exclusive: true})
	}
}

// closePlain keeps the hosts of listeners of HTTP that are left out from others of their ports.
func (to *assembly) closePlain(all []*listener.Listener) {
	open := map[int32]bool{}
	for _, l := range all {
		open[l.Of.Port] = open[l.Of.Port] || l.Usable() && l.Of.Protocol == gatewayv1.HTTPProtocolType
	}
	for _, l := range all {
		if l.LeftOut == nil || !l.Accepted.OK || to.out[namesOf(l.Parent)] || l.Of.Protocol != gatewayv1.HTTPProtocolType || !open[l.Of.Port] {
			continue
		}
		to.model.HTTP = append(to.model.HTTP, envoy.Listener{Hostname: l.Hostname, Port: uint32(l.Of.Port), Exclusive: true})
	}
}
