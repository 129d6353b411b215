// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package gateway

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v2 "github.com/skep-operator/skep/resources/api/v2"
	"github.com/skep-operator/skep/resources/operatortest"
)

// GW-57; number 42 of the contract's gateway-api.md: no request that a server is to be asked about is served without it, whatever agents
// run, and wherever the reference goes.
func TestExternalAuthByAgents(t *testing.T) {
	w := newWorld(t)
	w.crds.InstallGatewayAPI("experimental", "httproutes")
	w.agent("n1", "1.20.1")
	w.apply(gateways.Resource(), fmt.Sprintf(plainGateway, "{name: http, port: 80, protocol: HTTP}"))
	w.apply(httpRoutes.Resource(), httpRouteTo("web", "", "v1"))
	w.apply(httpRoutes.Resource(), strings.Replace(httpRouteTo("admin", "", "v1"), "[{backendRefs", `[{matches: [{path: {value: /admin}}],
filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP, http: {path: /check}, backendRef: {name: v2, port: 80}}}], backendRefs`, 1))
	filters := func() string {
		u, err := w.Dynamic.Resource(v2.CiliumEnvoyConfigResource).Namespace(w.Namespace).Get(t.Context(), "cilium-gateway-edge", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		text, err := json.Marshal(u.Object["spec"])
		w.must(err)
		return fmt.Sprint(strings.Count(string(text), "envoy.filters.http.ext_authz/HTTP:"+w.Namespace+":v2:80:pp:/check"), " ", strings.Contains(string(text), "ext_authz"))
	}
	args := []string{"--cilium-pod-namespace=" + w.Namespace}
	const (
		refused = "False UnsupportedValue: Dropped Rule 0: the filter ExternalAuth needs agents of 1.20 on all nodes"
		asked   = "2 true" // the filter, and that the other route switches it off
	)
	served, closed := []string{"*/admin → NS:v1:80", "*/ → NS:v1:80"}, []string{"*/admin → 500", "*/ → NS:v1:80"}
	o := w.start(args...)
	w.awaitAccepted(httpRoutes.Resource(), "admin", httpOK)
	w.await("the server is asked", asked, filters)
	w.awaitRoutes("cilium-gateway-edge", "insecure", served...)

	w.agent("n2", "1.19.4")
	w.awaitAccepted(httpRoutes.Resource(), "admin", refused)
	w.await("with an older agent there is no filter", "0 false", filters)
	w.awaitRoutes("cilium-gateway-edge", "insecure", closed...)
	w.must(w.Core.CoreV1().Pods(w.Namespace).Delete(t.Context(), "cilium-n2", metav1.DeleteOptions{GracePeriodSeconds: new(int64)}))
	w.awaitAccepted(httpRoutes.Resource(), "admin", httpOK)
	w.await("without it the server is asked", asked, filters)

	w.patch(httpRoutes.Resource(), "admin", `{"spec":{"rules":[{"matches":[{"path":{"value":"/admin"}}],"backendRefs":[{"name":"v1","port":80}],
		"filters":[{"type":"ExternalAuth","externalAuth":{"protocol":"HTTP","http":{"path":"/check"},"backendRef":{"name":"gone","port":80}}}]}]}}`)
	w.awaitResolved(httpRoutes.Resource(), "admin", `False BackendNotFound: Service "gone" not found`)
	w.awaitRoutes("cilium-gateway-edge", "insecure", closed...)
	w.service(w.Namespace, "gone")
	w.awaitResolved(httpRoutes.Resource(), "admin", resolvedOK)
	w.awaitRoutes("cilium-gateway-edge", "insecure", served...)
	w.CheckHealthy(o)
	o.Stop()

	o = w.start("--cilium-release=1.19")
	w.awaitAccepted(httpRoutes.Resource(), "admin", refused)
	operatortest.Eventually(t, "with the release of the option", func() bool { return strings.HasSuffix(filters(), "false") })
	o.Stop()
}
