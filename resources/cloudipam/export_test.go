// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cloudipam

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/cluster"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/metrics"
)

// Operator is a controller whose steps a test takes, one at a time, in place of its jobs.
type Operator struct {
	c     *controller
	nodes *stream.Local[ciliumNode]
	codec *slim.Codec[ciliumNode]
}

// NewOperator returns an operator that knows no CiliumNode.
func NewOperator(ctx context.Context, p Provider, client k8s.Client, config Config, now func() time.Time) (*Operator, error) {
	nodes, err := stream.NewLocal[ciliumNode]()
	pods, podErr := stream.NewLocal[pendingPod]()
	codec, codecErr := slim.JSON[ciliumNode]()
	if err := errors.Join(err, podErr, codecErr); err != nil {
		return nil, err
	}
	log, h := slog.New(slog.DiscardHandler), health.NewTree().Reporter("ipam.memory")
	c := newController(params{
		Config: config, Cluster: cluster.Config{IPAM: modeWithPools}, Provider: p, Nodes: nodes, Pods: pods, Client: client, Health: h, Log: log,
		Deps:    reconcile.Deps{Module: cell.ModuleInfo{ID: "ipam.memory", Term: "leader"}, Log: log, Health: h},
		Metrics: newMetrics(metrics.Factory{Namespace: "test"}),
	})
	c.now, c.random = now, func() float64 { return 0 }
	nodes.Replace()
	pods.Replace()
	c.nodes, err = nodes.Store(ctx)
	if err == nil {
		c.pods, err = pods.Store(ctx)
	}
	return &Operator{c, nodes, codec}, err
}

// Show has the cache show a CiliumNode.
func (o *Operator) Show(n *v2.CiliumNode) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	obj := new(ciliumNode)
	if err := o.codec.DecodeJSON(text, obj); err != nil {
		return err
	}
	o.nodes.Upsert(obj)
	return nil
}

// Hide has the cache show that a CiliumNode is deleted.
func (o *Operator) Hide(name string) { o.nodes.Delete(slim.Key{Name: name}) }

// Reconcile processes a CiliumNode.
func (o *Operator) Reconcile(ctx context.Context, name string) error {
	return o.c.reconcile(ctx, name)
}

// ReadAll reads the whole cloud.
func (o *Operator) ReadAll(ctx context.Context) error {
	_, err := o.c.cloud.readAll(ctx)
	return err
}

// ReadWanted reads the instances that were requested.
func (o *Operator) ReadWanted(ctx context.Context) error {
	_, err := o.c.cloud.readWanted(ctx)
	return err
}

// KeepExcess has nothing released.
func (o *Operator) KeepExcess() { o.c.Config.ReleaseExcessIPs = false }

// ReturnDelay is for how long an address is hidden from an agent with pools before it is unassigned.
const ReturnDelay = returnDelay

// Backoff is the pause after a failure.
var Backoff = backoff

// SetDelay sets the delay of releases, in seconds.
func (o *Operator) SetDelay(seconds int) { o.c.Config.ExcessIPReleaseDelay = seconds }

// UseUpNodeReads has no Node of others be read any more.
func (o *Operator) UseUpNodeReads() {
	o.c.nodeReads.SetLimit(0)
	o.c.nodeReads.SetBurst(0)
}
