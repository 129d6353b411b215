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
	s := c.state(g.Key())
	if len(foreign) == 0 {
		s.foreignSince = time.Time{}
		return c.unreadableGrants(), nil
	}
	sets, err := c.needListenerSets(ctx, g.Key())
	if err != nil || !sets.known() || sets.denied {
		return c.awaiting(sets).RequeueAfter, err
	}
	for namespace := range sets.namespacesAt(g.Key()) {
		foreign = c.foreignKeys(foreign, route.KindListenerSet, namespace)
	}
	if len(foreign) == 0 {
		s.foreignSince = time.Time{}
		return unreadableRetry, nil // one that cannot be decoded may be among these
	}
	now := c.Deps.Plan.Now()
	if s.foreignSince.IsZero() {
		s.foreignSince = now
	}
	if rest := foreignGrace - now.Sub(s.foreignSince); rest > 0 {
		return rest, nil
	}
	if err := configNames(g.Key()).Withdraw(ctx, c.Client, c.configs, ownerOf(g), foreign); err != nil {
		return 0, err
	}
	c.reports.Set(route.KindGateway, aboutGateway(g), envoyres.Notice{
		Reason: "NotTranslated", Message: "no ReferenceGrant allows it any more to read the Secrets with the copies " + strings.Join(foreign, ", ") + ": hosts that have no other key are not served",
	})
	return 0, nil
}

// foreignGrace is how long keys stay that nothing permits: a ReferenceGrant or a ListenerSet may be replaced by another one.
const foreignGrace = 2 * time.Second

// unreadableGrants is when to look again where ReferenceGrants cannot be decoded: there is no change when one is deleted.
func (c *controller) unreadableGrants() time.Duration {
	if len(c.grants.Unreadable()) > 0 {
		return unreadableRetry
	}
	return 0
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

// addLeft adds the Gateways whose configurations have a copy from a namespace, wherever it comes from: what they may read may have changed.
func (c *controller) addLeft(to *keySet, from string) {
	copies := c.Envoy.GatewayAPISecretsNamespace
	if c.Copies == nil {
		return
	}
	for g := range c.gateways.All() {
		for _, name := range configNames(g.Key()).Secrets(c.configs, ownerOf(g)) {
			name, _ = strings.CutPrefix(name, copies+"/")
			if of, known := c.Copies.LastOwner(copies, name); known && of.Namespace == from && from != g.Namespace.String() {
				to.add(g.Key())
				break
			}
		}
	}
}
