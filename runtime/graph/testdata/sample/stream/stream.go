// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package stream watches objects.
package stream

import (
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/idle"
	"github.com/skep-operator/skep/runtime/graph/testdata/sample/k8s"
	"github.com/skep-operator/skep/runtime/lifecycle"
)

type (
	// Resource is a stream of objects.
	Resource[T any] struct{}
	// CiliumNode is an object.
	CiliumNode struct{}
	// Pod is an object.
	Pod struct{}
	// Service is an object that no cell watches.
	Service struct{}
)

func newResource[T any](*k8s.Client) *Resource[T]  { return &Resource[T]{} }
func newNodes(c *k8s.Client) *Resource[CiliumNode] { return newResource[CiliumNode](c) }
func newPods(c *k8s.Client) *Resource[Pod]         { return newResource[Pod](c) }
func newServices(c *k8s.Client) *Resource[Service] { return newResource[Service](c) }

func sync(*Resource[CiliumNode], *Resource[Pod]) lifecycle.Hook { return idle.Hook() }

// Cell is the module.
var Cell = cell.Module("stream", "Typed watch streams that all duties share",
	cell.Provide(newNodes, newPods, newServices),
	cell.Hook("sync", sync),
)
