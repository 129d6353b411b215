// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

// controller decides the key of each Service.
type controller struct {
	params
	services   *stream.Store[service]
	slices     *stream.Store[endpointSlice]
	namespaces *stream.Store[slim.Namespace]
	tooLarge   *kvstore.SizeReport

	mu      sync.Mutex
	invalid map[slim.Key]string // addresses that are left out, by Service
	beyond  map[slim.Key]beyond // what is left out of Services that are too large
	cut     map[slim.Key]bool   // Services that are too large to be kept
	flags   map[slim.Key]string // annotations that are neither true nor false, by Service
}

type params struct {
	cell.In

	Config     Config
	Cluster    cluster.Config
	Services   stream.Resource[service]
	Slices     stream.Resource[endpointSlice]
	Namespaces stream.Resource[slim.Namespace]
	Metrics    *syncMetrics
	Health     health.Reporter
	Events     *k8s.Events
	Log        *slog.Logger
}

func newController(p params) *controller {
	if !p.Config.EnableK8sEndpointSlice {
		p.Log.Warn("reading EndpointSlices, and no Endpoints, although the option for EndpointSlices is off", "flag", "enable-k8s-endpoint-slice")
	}
	return &controller{params: p, tooLarge: kvstore.NewSizeReport(p.Health, "Services"), invalid: map[slim.Key]string{}, beyond: map[slim.Key]beyond{}, cut: map[slim.Key]bool{}, flags: map[slim.Key]string{}}
}

// Open is called before anything is watched.
func (c *controller) Open(ctx context.Context) (err error) {
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	if c.slices, err = c.Slices.Store(ctx); err != nil {
		return err
	}
	c.namespaces, err = c.Namespaces.Store(ctx)
	return err
}

// sliceChanged is the Service of an EndpointSlice.
func (*controller) sliceChanged(ch stream.Change[endpointSlice]) []slim.Key {
	return []slim.Key{serviceOf(ch.Object)}
}

// namespaceChanged is the shared Services of a Namespace: others have no key in any case.
func (c *controller) namespaceChanged(ch stream.Change[slim.Namespace]) (keys []slim.Key) {
	for s := range stream.ByIndex(c.services, byNamespace, ch.Key.Name) {
		keys = append(keys, s.Key())
	}
	return keys
}

// IsUnmarked implements mirror.Unmarked: other clusters are to read EndpointSlices alone (SSYNC-25).
func (c *controller) IsUnmarked() bool { return !c.Cluster.ExportsServices() }

// Desired is the value of a Service's key. It is not known while an object that decides it cannot be decoded, or is too large.
func (c *controller) Desired(key slim.Key) (value []byte, known bool) {
	s, exists := c.services.Get(key)
	if !exists {
		c.forget(key)
		c.forgetFlags(key)
		return nil, !c.services.Hides(key)
	}
	c.reportFlags(s)
	scope := globalnamespace.Of(c.namespaces, key.Namespace, c.Cluster)
	if c.IsUnmarked() || !mayBeExported(s) || scope == globalnamespace.Local { // however large it is
		c.forget(key)
		return nil, true
	}
	if s.IsCut() {
		c.reportCut(s, s.CutError())
		return nil, false
	}
	if !isExported(s, c.Cluster.EnableNodePort) {
		c.forget(key)
		return nil, true
	}
	if scope == globalnamespace.Unknown || c.hidesSlice(key) {
		return nil, false
	}
	of := slices.SortedFunc(stream.ByIndex(c.slices, byService, key), func(a, b *endpointSlice) int { return cmp.Compare(a.Name, b.Name) })
	cut := cutOf(of)
	if c.reportCut(s, cut); cut != nil {
		return nil, false
	}
	value, out := encode(s, of, c.Config, c.Cluster)
	c.reportInvalid(key, out.invalid)
	c.reportBeyond(s, out.beyond)
	return value, true
}

// cutOf is why one of some EndpointSlices is not kept, nil if all are.
func cutOf(all []*endpointSlice) error {
	for _, s := range all {
		if err := s.CutError(); err != nil {
			return fmt.Errorf("EndpointSlice %s: %w", s.Name, err)
		}
	}
	return nil
}

// reportCut reports a Service that is too large to be kept, or an EndpointSlice of which is, when that begins: its key stays as it is. why is nil where
// all is kept.
func (c *controller) reportCut(s *service, why error) {
	key := s.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cut[key] == (why != nil) {
		return
	}
	if delete(c.cut, key); why == nil {
		c.tooLarge.Set(key.String(), "")
		return
	}
	delete(c.beyond, key)
	c.cut[key] = true
	text := "its key stays as it is: " + why.Error()
	c.tooLarge.Set(key.String(), text)
	c.Events.Warning(corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name, UID: s.UID.API()}, "ServiceTooLarge", text)
}

// reportBeyond reports what is left out of the key of a Service for its size, when that begins, when something else is left out, and when
// it ends.
func (c *controller) reportBeyond(s *service, out beyond) {
	key := s.Key()
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.beyond[key]
	if before == out {
		return
	}
	if delete(c.beyond, key); out.some() {
		c.beyond[key] = out
	}
	c.tooLarge.Set(key.String(), out.text())
	if !out.some() || before.kinds() == out.kinds() {
		return
	}
	text := out.text() + ": with them the key would be larger than etcd accepts; use fewer"
	c.Log.Warn("a Service is not exported as a whole", "service", key.String(), "detail", text)
	about := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name, UID: s.UID.API()}
	if out.backends > 0 {
		c.Events.Warning(about, "BackendsNotExported", text)
	} else {
		c.Events.Warning(about, "ServiceTooLarge", text)
	}
}

// forget removes what was reported of a Service that has no key.
func (c *controller) forget(key slim.Key) {
	c.reportInvalid(key, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.beyond, key)
	delete(c.cut, key)
	c.tooLarge.Set(key.String(), "")
}

// hidesSlice reports whether an EndpointSlice of a Service may be on the server of which nothing can be decoded: they
// have names that begin with the Service's.
func (c *controller) hidesSlice(key slim.Key) bool {
	return c.slices.Hides(key) || slices.ContainsFunc(c.slices.Unreadable(), func(k slim.Key) bool {
		return k.Namespace == key.Namespace && strings.HasPrefix(k.Name, key.Name) && c.slices.Hides(k)
	})
}

// reportInvalid records the addresses of a Service that are left out, and logs them when they change.
func (c *controller) reportInvalid(key slim.Key, addresses []string) {
	text := strings.Join(addresses, ", ")
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.invalid[key] == text {
		return
	}
	if c.invalid[key] = text; text == "" {
		delete(c.invalid, key)
	} else {
		c.Log.Warn("addresses of a Service are not exported: they are no IP addresses", "service", key.String(), "addresses", text)
	}
	c.Metrics.Invalid.Set(float64(len(c.invalid)))
}
