// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package crd

import (
	"fmt"
	"testing"
	"time"

	"github.com/skep-operator/skep/cells/internal/claims"
	"github.com/skep-operator/skep/resources/domain/identity"
	"github.com/skep-operator/skep/resources/stream/ciliumio"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// endpointOf makes an endpoint in a namespace, and its pod if it is to have one.
func (r *rig) endpointOf(namespace, name string, n int64, hasPod bool) {
	e := &ciliumio.Endpoint{}
	e.Namespace, e.Name = slim.MakeString(namespace), name
	e.Status.Identity = &ciliumio.EndpointIdentity{ID: n}
	r.endpoints.Upsert(e)
	if hasPod {
		p := &slim.Pod{}
		p.Namespace, p.Name = slim.MakeString(namespace), name
		r.pods.Upsert(p)
	}
}

// IDGC-4, IDGC-21, ID-48; K4 of the contract's tenants.md: endpoints of one namespace that are of no pods keep a bounded number of identities, also while they
// are written again and again. Those of pods keep theirs. Where agents make identities, all count.
func TestEndpointsWithoutPodsKeepFew(t *testing.T) {
	const forged, real = 700, 150
	for name, byOperator := range map[string]bool{"the operator makes identities": true, "agents do": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(r *rig) {
				r.cluster.OperatorManagesIdentities = byOperator
				r.own, r.share = identity.Range{Min: 1000, Max: 1999}, 1
				for n := range forged + real {
					r.identity(fmt.Sprint(1000 + n))
					if n < forged {
						r.endpointOf("bb", fmt.Sprint("x", n), int64(1000+n), false)
					} else {
						r.endpointOf("aa", fmt.Sprint("web", n), int64(1000+n), true)
					}
				}
				r.start()
				for minute := 1; minute < 120; minute++ {
					r.at(time.Duration(minute) * time.Minute)
					r.endpointOf("bb", "x699", 1699, false)
				}
				left, ofPods := 0, 0
				for n := range forged + real {
					if _, there := r.text(fmt.Sprint(1000 + n)); there && n < forged {
						left++
					} else if there {
						ofPods++
					}
				}
				want, warnings := forged, 0
				if byOperator {
					want, warnings = claims.Spare, 1
				}
				r.stop()
				if got := r.warnings("without a pod"); left != want || ofPods != real || got != warnings {
					t.Errorf("%d identities are left, want %d, and %d of %d that pods have; %d warnings", left, want, ofPods, real, got)
				}
			})
		})
	}
}
