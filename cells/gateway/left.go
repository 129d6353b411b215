// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/cells/gateway/internal/listener"
	"github.com/skep-operator/skep/cells/gateway/internal/route"
	envoyres "github.com/skep-operator/skep/resources/envoy"
	"github.com/skep-operator/skep/resources/reconcile"
	"github.com/skep-operator/skep/resources/secretref"
	"github.com/skep-operator/skep/resources/stream/slim"
)

// leave leaves what is served of a Gateway as it is, but for keys that it may not read any more (GW-63).
func (c *controller) leave(ctx context.Context, g *gateway, why reconcile.Result, errs ...error) (reconcile.Result, error) {
	retry, err := c.withdrawKeys(ctx, g)
	if why.RequeueAfter == 0 {
		why.RequeueAfter = retry
	}
	return why, errors.Join(append(errs, err)...)
}

// withdrawKeys takes the keys out of the configuration of a Gateway that neither it nor a ListenerSet that refers to it may read any more. Where that is not
// known, retry is when to look again; 0 where what comes to be known wakes the Gateway.
func (c *controller) withdrawKeys(ctx context.Context, g *gateway) (retry time.Duration, err error) {
	foreign := c.foreignKeysOf(g)
	if len(foreign) == 0 {
		return 0, nil
	}
	sets, err := c.needListenerSets(ctx, g.Key())
	if err != nil || !sets.known() || sets.denied {
		return c.awaiting(sets).RequeueAfter, err
	}
	for namespace := range sets.namespacesAt(g.Key()) {
		foreign = c.foreignKeys(foreign, route.KindListenerSet, namespace)
	}
	if len(foreign) == 0 {
		return 0, nil
	}
	if err := configNames(g.Key()).Withdraw(ctx, c.Client, c.configs, ownerOf(g), foreign); err != nil {
		return 0, err
	}
	c.reports.Set(route.KindGateway, aboutGateway(g), envoyres.Notice{
		Reason: "NotTranslated", Message: "no ReferenceGrant allows it any more to read the Secrets with the copies " + strings.Join(foreign, ", ") + ": hosts that have no other key are not served",
	})
	return 0, nil
}

// foreignKeysOf are the copies in the configuration of a Gateway that are of Secrets which it may not read itself. ListenerSets of it may.
func (c *controller) foreignKeysOf(g *gateway) []string {
	return c.foreignKeys(configNames(g.Key()).Secrets(c.configs, ownerOf(g)), route.KindGateway, g.Namespace.String())
}

// namespacesAt are those of the ListenerSets that refer to a Gateway, or may.
func (s knownSets) namespacesAt(gateway slim.Key) map[string]bool {
	all := map[string]bool{}
	for _, set := range s.of(gateway) {
		all[set.Namespace.String()] = true
	}
	if s.store != nil {
		for _, key := range s.store.Unreadable() {
			all[key.Namespace] = true
		}
	}
	return all
}

// foreignKeys are those of names of secrets that are copies of Secrets which objects of a kind and a namespace may not read.
func (c *controller) foreignKeys(names []string, kind, namespace string) []string {
	to := c.Envoy.GatewayAPISecretsNamespace
	if c.Copies == nil || !secretref.CopiesTo(to, c.References, c.Envoy, c.Cluster) {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(names), func(name string) bool {
		name, isCopy := strings.CutPrefix(name, to+"/")
		of, known := c.Copies.LastOwner(to, name)
		return !isCopy || !known || of.Kind != secretref.Secret || of.Namespace == namespace || c.mayAllow(kind, namespace, of.Key)
	})
}

// mayAllow reports whether a ReferenceGrant lets objects of a kind and a namespace refer to a Secret, or one that cannot be decoded may.
func (c *controller) mayAllow(kind, namespace string, secret slim.Key) bool {
	return c.isGranted(route.Query{About: route.AboutGrant, Key: secret, FromKind: kind, FromNamespace: namespace, ToKind: listener.KindSecret}) ||
		slices.ContainsFunc(c.grants.Unreadable(), func(grant slim.Key) bool { return grant.Namespace == secret.Namespace })
}

// addLeft adds the Gateways that are not made anew now: what these may read may have changed.
func (c *controller) addLeft(to *keySet) {
	for g := range c.gateways.All() {
		if _, exists := c.classes.Get(slim.Key{Name: string(g.Spec.GatewayClassName)}); !exists || !g.DeletionTimestamp.IsZero() || g.IsCut() {
			to.add(g.Key())
		}
	}
}
