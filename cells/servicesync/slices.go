// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"context"

	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/globalnamespace"
	"github.com/skep-operator/skep/resources/kvstore"
	"github.com/skep-operator/skep/resources/mirror"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
)

var slicesCell = cell.Module("slices", "Copies EndpointSlices of global Services to etcd for other clusters",
	cell.EnabledBy(cell.When("the release has EndpointSlices in the kvstore", []string{"clustermesh-service-v2"}, cluster.Config.ExportsSlices)),
	stream.Provide(wholeSlices),
	mirror.Controller(kvstore.EndpointSlicesPrefix, newSliceController,
		mirror.For[*sliceController](wholeSlices),
		mirror.Watches(services, (*sliceController).serviceChanged),
		mirror.Watches(stream.Namespaces, (*sliceController).namespaceChanged),
	),
)

// sliceController decides the key of each EndpointSlice.
type sliceController struct {
	sliceParams
	services   *stream.Store[service]
	slices     *stream.Store[wholeSlice]
	namespaces *stream.Store[slim.Namespace]
	tooLarge   *kvstore.SizeReport
}

type sliceParams struct {
	cell.In

	Cluster    cluster.Config
	Services   stream.Resource[service]
	Slices     stream.Resource[wholeSlice]
	Namespaces stream.Resource[slim.Namespace]
	Health     health.Reporter
}

func newSliceController(p sliceParams) *sliceController {
	return &sliceController{sliceParams: p, tooLarge: kvstore.NewSizeReport(p.Health, "EndpointSlices")}
}

// Open is called before anything is watched.
func (c *sliceController) Open(ctx context.Context) (err error) {
	if c.services, err = c.Services.Store(ctx); err != nil {
		return err
	}
	if c.slices, err = c.Slices.Store(ctx); err != nil {
		return err
	}
	c.namespaces, err = c.Namespaces.Store(ctx)
	return err
}

// serviceChanged is the EndpointSlices of a Service.
func (c *sliceController) serviceChanged(ch stream.Change[service]) (keys []slim.Key) {
	for s := range stream.ByIndex(c.slices, wholeByService, ch.Key) {
		keys = append(keys, s.Key())
	}
	return keys
}

// namespaceChanged is the EndpointSlices of the shared Services of a Namespace: others have no key in any case.
func (c *sliceController) namespaceChanged(ch stream.Change[slim.Namespace]) (keys []slim.Key) {
	for s := range stream.ByIndex(c.services, byNamespace, ch.Key.Name) {
		keys = append(keys, c.serviceChanged(stream.Change[service]{Key: s.Key()})...)
	}
	return keys
}

// Desired is the value of an EndpointSlice's key (SSYNC-24). It is not known while an object that decides it cannot be decoded, or is too large.
func (c *sliceController) Desired(key slim.Key) (value []byte, known bool) {
	s, exists := c.slices.Get(key)
	if !exists {
		c.tooLarge.Set(key.String(), "")
		return nil, !c.slices.Hides(key)
	}
	of, exists := c.services.Get(s.serviceKey())
	scope := globalnamespace.Of(c.namespaces, key.Namespace, c.Cluster)
	switch {
	case scope == globalnamespace.Local, exists && !mayBeExported(of), !exists && !c.services.Hides(s.serviceKey()): // however large they are
		c.tooLarge.Set(key.String(), "")
		return nil, true
	case !exists, of.IsCut():
		return nil, false
	case !isExported(of, c.Cluster.EnableNodePort):
		c.tooLarge.Set(key.String(), "")
		return nil, true
	}
	if scope == globalnamespace.Unknown {
		return nil, false
	}
	if err := s.CutError(); err != nil {
		c.tooLarge.Set(key.String(), "its key stays as it is: "+err.Error())
		return nil, false
	}
	return c.valueOf(s)
}

// valueOf is the value of an EndpointSlice that is exported, unless it is larger than etcd takes: then health has it, and its key stays as it is.
func (c *sliceController) valueOf(s *wholeSlice) (value []byte, known bool) {
	value, err := s.encode(c.Cluster.ClusterName, c.Cluster.ClusterID)
	switch {
	case err != nil:
		c.tooLarge.Set(s.Key().String(), err.Error())
		return nil, false
	case len(value) > kvstore.MaxValue:
		c.tooLarge.Set(s.Key().String(), "it is larger than etcd takes: other clusters do not see it as it is")
		return nil, false
	}
	c.tooLarge.Set(s.Key().String(), "")
	return value, true
}
