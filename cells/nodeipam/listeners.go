// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package nodeipam

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/cluster"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/k8s"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/stream"
	"github.com/skep-operator/skep/resources/stream/slim"
	"github.com/skep-operator/skep/runtime/health"
)

// listeners are those of Envoy on the network of the nodes: agents would send to a Service what is meant for one of them (NIPAM-15).
type listeners struct {
	configs   stream.Resource[envoyres.Object]
	operators string // the namespace of the operator
	log       *slog.Logger
	store     atomic.Pointer[stream.Store[envoyres.Object]] // nil while the API server does not serve the kind
	ports     envoyres.HostPortChanges                      // used by follow
}

func newListeners(configs stream.Resource[envoyres.Object], c cluster.Config, log *slog.Logger) *listeners {
	return &listeners{configs: configs, operators: cmp.Or(c.K8sNamespace, "kube-system"), log: log, ports: envoyres.HostPortChanges{}}
}

const (
	// absentAfter is how long the API server does not serve the kind until there are no listeners: one that is starting does not, either.
	absentAfter = 10 * time.Second
	absentCheck = time.Second
)

// open returns when the listeners are known. Without the definition of the kind there are none, until it comes.
func (l *listeners) open(ctx context.Context) error {
	defer health.ReportBlocked(ctx, envoyres.Objects.String(), "the initial state is not complete")()
	for absent := time.Duration(0); absent < absentAfter; {
		limited, cancel := context.WithTimeout(ctx, absentCheck)
		_, err := l.configs.Store(limited)
		cancel()
		switch {
		case err == nil:
			store, err := l.configs.Store(ctx)
			l.store.Store(store)
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, stream.ErrClosed):
			return err
		case l.configs.State().NotServed():
			absent += absentCheck
		default:
			absent = 0
		}
	}
	l.log.Info("there are no listeners on the network of the nodes until the API server serves CiliumEnvoyConfigs")
	return nil
}

// besides is what a Service gets beside listeners of other namespaces: nothing if one that is older has a port of it, or one before which nothing goes. why
// names it. An older Service keeps the port, also at addresses that it does not have yet.
func (l *listeners) besides(s *service, want []string) (left []string, why denial) {
	store := l.store.Load()
	if store == nil {
		return want, denial{}
	}
	asks := envoyres.PortAsker{Namespace: s.Namespace.String(), Operators: l.operators}
	for _, p := range s.Spec.Ports {
		if p.Protocol.String() != string(corev1.ProtocolTCP) {
			continue
		}
		if of, isShared := asks.ListenerAt(uint32(p.Port), store); of != nil && (isShared || isOlder(of, s)) {
			return nil, denied(fmt.Sprintf("port %d of the nodes is that of the %s", p.Port, of.Describe()))
		}
	}
	return want, denial{}
}

// isOlder reports whether a CiliumEnvoyConfig is older than a Service.
func isOlder(o *envoyres.Object, s *service) bool {
	return cmp.Or(cmp.Compare(o.CreationTimestamp, s.CreationTimestamp), cmp.Compare(o.Namespace.String(), s.Namespace.String()), cmp.Compare(o.Name, s.Name)) < 0
}

// changed are the ports of the nodes that a CiliumEnvoyConfig has or had, if they are others now.
func (l *listeners) changed(ch stream.Change[envoyres.Object]) envoyres.HostPorts {
	was := l.ports[ch.Key]
	if !l.ports.Apply(ch) {
		return nil
	}
	return slices.Concat(was, l.ports[ch.Key])
}

// followListeners reconciles Services as listeners at their ports come, change and go.
func (c *controller) followListeners(ctx context.Context, enqueue reconcile.Enqueue) {
	l := c.Listeners
	if l == nil {
		return
	}
	wake := func(key slim.Key, ports envoyres.HostPorts, trigger k8s.Trigger) {
		for _, port := range ports {
			for _, of := range c.withPort(port, key.Namespace) {
				enqueue(of, trigger)
			}
		}
	}
	for batch := range l.configs.Changes(ctx) {
		if batch.Synced && l.store.Load() == nil { // the definition has come, and Services of earlier batches were reconciled without it
			store, err := l.configs.Store(ctx)
			if err != nil {
				return
			}
			l.store.Store(store)
			for key, ports := range l.ports {
				wake(key, ports, k8s.Trigger{Kind: envoyres.Objects.Name(), Namespace: key.Namespace, Name: key.Name})
			}
		}
		for _, ch := range batch.Changes {
			wake(ch.Key, l.changed(ch), envoyres.Objects.Trigger(ch.Object))
		}
	}
}

// withPort are the Services with addresses of nodes that have a port, beside those of a namespace.
func (c *controller) withPort(port uint32, besides string) (keys []slim.Key) {
	for s := range stream.ByIndex(c.services, byPort, servicePort{Port: int32(port), Protocol: tcp}) {
		if isOurs(s, c.Cluster) && s.Namespace.String() != besides {
			keys = append(keys, s.Key())
		}
	}
	return keys
}

var tcp = slim.MakeString(string(corev1.ProtocolTCP))
