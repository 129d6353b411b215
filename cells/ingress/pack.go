// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package ingress

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/skep-operator/skep/resources/domain/envoy"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
)

const (
	// packings is how often the configuration is translated again with fewer Ingresses. Sizes are known about: the second one fits
	// nearly always.
	packings = 8
	// packingAim is the size that is aimed at, a little less than what fits.
	packingAim = envoy.MaxSize / 100 * 98
)

// packShared translates the Ingresses that share a load balancer. What does not fit into one configuration is left out (ING-23): it
// would keep the changes of all others from being written. What needs much memory has the turn of large objects meanwhile (K8S-26).
func (c *controller) packShared(ctx context.Context) (t envoy.Translation, spec envoy.Encoded, err error) {
	ctx, release := k8s.WithTurn(ctx)
	defer release()
	s, o := &c.shared, awaiting(ctx, c.sharedOptions())
	if err := c.chooseOut(o); err != nil {
		return t, spec, err
	}
	for range packings {
		if t, err = s.translator.Translate(s.model(), o); err == nil && t.Empty {
			return t, spec, nil
		}
		if err == nil {
			spec, err = envoy.Encode(t.Spec)
		}
		tooLarge := new(envoy.TooLargeError)
		if !errors.As(err, &tooLarge) {
			return t, spec, err
		}
		if err := c.tighten(o, tooLarge); err != nil {
			return t, spec, err
		}
		if err := c.chooseOut(o); err != nil {
			return t, spec, err
		}
	}
	return t, spec, err
}

// awaiting are options for a translation that waits for the turn of large objects before it needs much memory.
func awaiting(ctx context.Context, o envoy.Options) envoy.Options {
	o.Await = func(bytes int) error { return k8s.AwaitTurn(ctx, bytes) }
	return o
}

// tighten lowers the limit, since with what is kept the configuration is too large. Where it was not translated to its end, it is about as large as the
// sizes are.
func (c *controller) tighten(o envoy.Options, is *envoy.TooLargeError) error {
	kept, err := c.measure(o)
	if err == nil && kept < is.Size/10*9 { // the sizes do not have what is too large
		kept, err = c.weigh(o)
	}
	if err != nil {
		return err
	}
	size := is.Size
	if is.AtLeast {
		size = max(size, kept)
	}
	c.shared.limit = max(1, int(int64(kept)*packingAim/int64(size)))
	return nil
}

// chooseOut chooses which Ingresses are left out, so that the others fit.
func (c *controller) chooseOut(o envoy.Options) error {
	s := &c.shared
	s.out = nil
	if s.limit == 0 {
		return nil
	}
	total, err := c.measure(o)
	if err != nil {
		return err
	}
	if s.retry(); s.limit == 0 || total <= s.limit {
		s.limit = 0 // all fit, as far as is known
		return nil
	}
	var parts []envoyres.Part
	for key, e := range s.ingested {
		parts = append(parts, s.parts(key, e)...)
	}
	s.out = leaveOut(parts, s.limit)
	return nil
}

// measure finds out what each Ingress adds to the configuration, about, and returns the sum of what is not left out.
func (c *controller) measure(o envoy.Options) (kept int, err error) {
	s, empty := &c.shared, 0
	for _, key := range sortedKeys(s.ingested) {
		e := s.ingested[key]
		if e.size == 0 {
			if empty == 0 {
				if empty, err = c.sizeOf(o, smallest); err != nil {
					return 0, err
				}
			}
			size, err := c.sizeOf(o, withSmallest(e.model))
			if err != nil {
				return 0, err
			}
			names, err := c.sizeOf(o, withSmallest(e.absent(e.of)))
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

// weigh measures what is kept of each namespace together, and returns the sum. What its Ingresses have together none of them may have alone, such as a filter chain for each
// host with all certificates of others: then each of them counts for more. Another namespace is left out for none of it.
func (c *controller) weigh(o envoy.Options) (kept int, err error) {
	s := &c.shared
	empty, err := c.sizeOf(o, smallest)
	if err != nil {
		return 0, err
	}
	together, sums := map[string]envoy.Model{}, map[string]int{}
	for _, key := range sortedKeys(s.ingested) {
		e := s.ingested[key]
		m, part := together[key.Namespace], s.kept(key, e)
		m.HTTP, m.Passthrough = append(m.HTTP, part.HTTP...), append(m.Passthrough, part.Passthrough...)
		together[key.Namespace] = m
		sums[key.Namespace] += s.keptSize(key, e)
	}
	for namespace, sum := range sums {
		if sum == 0 {
			continue
		}
		size, err := c.sizeOf(o, withSmallest(together[namespace]))
		if err != nil {
			return 0, err
		}
		if size -= empty; size > sum {
			s.weigh(namespace, float64(size)/float64(sum))
		}
		kept += max(size, sum)
	}
	return kept, nil
}

// smallest is next to nothing: its size is that of what each configuration has once. It answers for all hosts, and is the youngest, so
// that what an Ingress needs to keep its hosts from it is part of that one's size.
var smallest = envoy.Model{HTTP: []envoy.Listener{
	{Claim: youngest, Port: 80, Routes: []*envoy.Route{{}}},
	{Claim: youngest, Port: 443, TLS: true, Secrets: []envoy.Name{youngest.Of}, Routes: []*envoy.Route{{}}},
}}

// Its namespace is none that there is, and not that of a view without one.
var youngest = envoy.Claim{Of: envoy.Name{Namespace: "-", Name: "youngest"}, Created: time.Unix(1<<40, 0)}

// withSmallest is the model of an Ingress beside the smallest one.
func withSmallest(m envoy.Model) envoy.Model {
	m.HTTP = slices.Concat(m.HTTP, smallest.HTTP)
	return m
}

// sizeOf is the size of the configuration of a model alone: what is written, or what its translation is about to need, which is what ends one of all (ENV-40), if that is more.
func (c *controller) sizeOf(o envoy.Options, m envoy.Model) (int, error) {
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
		return max(tooLarge.Size, t.Need), nil
	}
	return max(len(spec.JSON), t.Need), err
}

// leftOut tells the user of an Ingress that it is not served.
func leftOut(size int) envoyres.Notice {
	return envoyres.Notice{Reason: "LeftOut", Degrades: true, Message: fmt.Sprintf(
		"it is not served: with its %d bytes the configuration of the shared load balancer would be larger than the %d bytes that an object may have, and no namespace has more of it: use fewer paths, or the annotation %sloadbalancer-mode: %s",
		size, envoy.MaxSize, prefix, dedicatedMode)}
}
