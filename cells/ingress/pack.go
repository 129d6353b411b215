// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/stream/slim"
)

const (
	// packings is how often the configuration is translated again with fewer Ingresses. Sizes are known about: the second one fits
	// nearly always.
	packings = 8
	// packingAim is the size that is aimed at, a little less than what fits.
	packingAim = envoy.MaxSize / 100 * 98
)

// packShared translates the Ingresses that share a load balancer. What does not fit into one configuration is left out (ING-23): it
// would keep the changes of all others from being written.
func (c *controller) packShared() (t envoy.Translation, spec envoy.Encoded, err error) {
	s, options := &c.shared, c.sharedOptions()
	if err := c.chooseOut(); err != nil {
		return t, spec, err
	}
	for range packings {
		if t, err = s.translator.Translate(s.model(), options); err == nil && t.Empty {
			return t, spec, nil
		}
		if err == nil {
			spec, err = envoy.Encode(t.Spec)
		}
		tooLarge := new(envoy.TooLargeError)
		if !errors.As(err, &tooLarge) {
			return t, spec, err
		}
		kept, measureErr := c.measure()
		if measureErr != nil {
			return t, spec, measureErr
		}
		size := tooLarge.Size
		if tooLarge.AtLeast { // it was not translated to its end, and is about as large as the sizes are
			size = max(size, kept)
		}
		s.limit = max(1, int(int64(kept)*packingAim/int64(size)))
		if err := c.chooseOut(); err != nil {
			return t, spec, err
		}
	}
	return t, spec, err
}

// chooseOut chooses which Ingresses are left out, so that the others fit.
func (c *controller) chooseOut() error {
	s := &c.shared
	s.out = nil
	if s.limit == 0 {
		return nil
	}
	total, err := c.measure()
	if err != nil {
		return err
	}
	if total <= s.limit {
		s.limit = 0 // all fit, as far as is known
		return nil
	}
	var parts []envoyres.Part
	for key, e := range s.ingested {
		parts = append(parts, e.parts(key)...)
	}
	s.out = leaveOut(parts, s.limit)
	return nil
}

// measure finds out what each Ingress adds to the configuration, about, and returns the sum of what is not left out.
func (c *controller) measure() (kept int, err error) {
	s, empty := &c.shared, 0
	for _, key := range sortedKeys(s.ingested) {
		e := s.ingested[key]
		if e.size == 0 {
			if empty == 0 {
				if empty, err = c.sizeOf(smallest); err != nil {
					return 0, err
				}
			}
			size, err := c.sizeOf(withSmallest(e.model))
			if err != nil {
				return 0, err
			}
			names, err := c.sizeOf(withSmallest(e.absent(e.of)))
			if err != nil {
				return 0, err
			}
			e.names = max(0, names-empty)
			e.size = max(1, size-empty, e.names)
			s.ingested[key] = e
		}
		kept += s.keptSize(key, e)
	}
	return kept, nil
}

// smallest is next to nothing: its size is that of what each configuration has once. It answers for all hosts, and is the youngest, so
// that what an Ingress needs to keep its hosts from it is part of that one's size.
var smallest = envoy.Model{HTTP: []envoy.Listener{
	{Claim: youngest, Port: 80, Routes: []*envoy.Route{{}}},
	{Claim: youngest, Port: 443, TLS: true, Secrets: []envoy.Name{youngest.Of}, Routes: []*envoy.Route{{}}},
}}

var youngest = envoy.Claim{Of: envoy.Name{Name: "youngest"}, Created: time.Unix(1<<40, 0)}

// withSmallest is the model of an Ingress beside the smallest one.
func withSmallest(m envoy.Model) envoy.Model {
	m.HTTP = slices.Concat(m.HTTP, smallest.HTTP)
	return m
}

// sizeOf is the size of the configuration of a model alone.
func (c *controller) sizeOf(m envoy.Model) (int, error) {
	o := c.sharedOptions()
	o.Copies = nil // the names are about as long
	t, err := new(envoy.Translator).Translate(m, o)
	if err == nil && t.Empty {
		return 0, nil
	}
	var spec envoy.Encoded
	if err == nil {
		spec, err = envoy.Encode(t.Spec)
	}
	if tooLarge := new(envoy.TooLargeError); errors.As(err, &tooLarge) {
		return tooLarge.Size, nil
	}
	return len(spec.JSON), err
}

// leftOut tells the user of an Ingress that it is not served.
func leftOut(size int) envoyres.Notice {
	return envoyres.Notice{Reason: "LeftOut", Degrades: true, Message: fmt.Sprintf(
		"it is not served: with its %d bytes the configuration of the shared load balancer would be larger than the %d bytes that an object may have, and no namespace has more of it: use fewer paths, or the annotation %sloadbalancer-mode: %s",
		size, envoy.MaxSize, prefix, dedicatedMode)}
}
