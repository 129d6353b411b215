// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// Number 22 of the contract's gateway-api.md, and 48 of its envoy-config.md; ENV-32: a Gateway with a long name has one CiliumEnvoyConfig. Of two,
// one stays, and is written again after the other one is gone.
func TestLongNames(t *testing.T) {
	const (
		name  = "a-gateway-with-a-name-that-is-longer-than-48-characters"
		long  = "cilium-gateway-" + name
		short = "cilium-gateway-a-gateway-with-a-name-that-is-longer--t8mfgbfgmh"
	)
	w := newWorld(t)
	configs := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace)
	all := func() string {
		list, err := configs.List(t.Context(), metav1.ListOptions{})
		w.must(err)
		var names []string
		for _, u := range list.Items {
			names = append(names, u.GetName())
		}
		return strings.Join(names, " ")
	}
	w.apply(gateways.Resource(), strings.Replace(fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"), "edge", name, 1))
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("web", "", "v1"), "{name: edge}", "{name: "+name+"}", 1))
	o := w.start("--cilium-release=1.19")
	w.await("1.19 has the long name", long, all)
	w.awaitRoutes(long, "insecure", "*/ → NS:v1:80")
	w.CheckHealthy(o)
	o.Stop()

	o = w.start("--cilium-release=1.20")
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("last", "a.test", "v2"), "{name: edge}", "{name: "+name+"}", 1))
	w.awaitRoutes(long, "insecure", "*/ → NS:v1:80", "a.test/ → NS:v2:80")
	w.await("1.20 goes on with it", long, all)
	o.Stop()

	left, err := configs.Get(t.Context(), long, metav1.GetOptions{})
	w.must(err)
	left.SetName(short)
	left.SetResourceVersion("")
	left.SetUID("")
	_, err = configs.Create(t.Context(), left, metav1.CreateOptions{})
	w.must(err)
	from := len(w.writes())
	o = w.start("--cilium-release=1.20")
	w.await("of two that of the release stays", short, all)
	operatortest.Eventually(t, "and is written after the other one is gone", func() bool {
		c, err := configs.Get(t.Context(), short, metav1.GetOptions{})
		return err == nil && c.GetAnnotations()["skep.dev/replaces"] == long
	})
	written := slices.DeleteFunc(slices.Clone(w.writes()[from:]), func(text string) bool { return !strings.Contains(text, " ciliumenvoyconfigs/") })
	if want := []string{"delete ciliumenvoyconfigs/ " + long, "update ciliumenvoyconfigs/ " + short}; !slices.Equal(written[max(0, len(written)-2):], want) {
		t.Errorf("written is %q, want %q in the end", written, want)
	}
	w.CheckHealthy(o)
}
