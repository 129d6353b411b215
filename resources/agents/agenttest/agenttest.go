// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package agenttest

import (
	"context"
	"fmt"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
)

// Agent is an agent of a release, such as 1.18, with the configuration that it shares with the operator. It is safe for concurrent use.
type Agent struct {
	Release string
	Config  map[string]string
}

// Missing returns what keeps the agent from being ready: definitions that do not exist, for which it waits for five minutes before it ends,
// and kinds that the API server does not list in the version that it reads. The error is that of a request with another answer.
func (a Agent) Missing(ctx context.Context, client dynamic.Interface) (missing []string, err error) {
	definitions := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	for _, plural := range a.awaited() {
		name := plural + ".cilium.io"
		switch _, err := definitions.Get(ctx, name, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			missing = append(missing, "the definition "+name)
		case err != nil:
			return nil, fmt.Errorf("reading the definition %s: %w", name, err)
		}
	}
	for _, of := range a.listed() {
		switch _, err := client.Resource(of).List(ctx, metav1.ListOptions{Limit: 1}); {
		case apierrors.IsNotFound(err):
			missing = append(missing, fmt.Sprintf("%s in the version %s", of.Resource, of.Version))
		case err != nil:
			return nil, fmt.Errorf("listing %s in the version %s: %w", of.Resource, of.Version, err)
		}
	}
	return missing, nil
}

// is reports whether a switch is on.
func (a Agent) is(key string, byDefault bool) bool {
	on, err := strconv.ParseBool(a.Config[key])
	return on || err != nil && byDefault
}

// awaited are the definitions that the agent waits for, whatever versions they have.
func (a Agent) awaited() []string {
	all := []string{"ciliumidentities", "ciliumpodippools", "ciliumloadbalancerippools", "ciliuml2announcementpolicies"}
	for _, of := range a.listed() {
		all = append(all, of.Resource)
	}
	if a.is("enable-bgp-control-plane", false) {
		all = append(all, "ciliumbgpclusterconfigs", "ciliumbgpnodeconfigoverrides")
	}
	return all
}

// newer is the version in which agents from 1.18 on read kinds that had only v2alpha1 before.
func (a Agent) newer() string {
	if a.Release == "1.17" {
		return "v2alpha1"
	}
	return "v2"
}

// listed are the kinds that the agent lists, in their versions.
func (a Agent) listed() (all []schema.GroupVersionResource) {
	add := func(when bool, version string, plurals ...string) {
		for _, plural := range plurals {
			if when {
				all = append(all, schema.GroupVersionResource{Group: "cilium.io", Version: version, Resource: plural})
			}
		}
	}
	policies, clusterwide := a.is("enable-cilium-network-policy", true), a.is("enable-cilium-clusterwide-network-policy", true)
	bgp := a.is("enable-bgp-control-plane", false)
	add(a.Release < "1.19" || a.is("enable-ciliumnode-crd", true), "v2", "ciliumnodes")
	add(true, "v2", "ciliumidentities", "ciliumnodeconfigs")
	add(!a.is("disable-endpoint-crd", false), "v2", "ciliumendpoints")
	add(policies, "v2", "ciliumnetworkpolicies")
	add(clusterwide, "v2", "ciliumclusterwidenetworkpolicies")
	add(policies || clusterwide, a.newer(), "ciliumcidrgroups")
	add(a.is("enable-egress-gateway", false) || a.Release < "1.19" && a.is("enable-ipv4-egress-gateway", false), "v2", "ciliumegressgatewaypolicies")
	add(a.is("enable-local-redirect-policy", false), "v2", "ciliumlocalredirectpolicies")
	add(a.is("enable-envoy-config", false), "v2", "ciliumenvoyconfigs", "ciliumclusterwideenvoyconfigs")
	add(bgp, a.newer(), "ciliumbgpnodeconfigs", "ciliumbgpadvertisements", "ciliumbgppeerconfigs")
	add(bgp && a.Release < "1.20", a.newer(), "ciliumloadbalancerippools")
	add(bgp && a.Release < "1.19", "v2alpha1", "ciliumbgppeeringpolicies")
	add(a.is("enable-cilium-endpoint-slice", false), "v2alpha1", "ciliumendpointslices")
	add(true, "v2alpha1", "ciliumpodippools", "ciliuml2announcementpolicies")
	add(a.Release >= "1.20" && a.is("enable-datapath-plugins", false), "v2alpha1", "ciliumdatapathplugins")
	return all
}
