// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Number 46 of the contract's envoy-config.md; ENV-22, ENV-E17: a backend with TLS has a cluster of its own, beside that of TLS that is passed through.
func TestUpstreamTLS(t *testing.T) {
	secure := to("s", "443")
	secure[0].TLS = &UpstreamTLS{ServerName: "a.example.com", Authority: Name{"shop", "ca"}, Names: []SubjectAltName{{Value: "b.example.com"}, {Value: "*.example.org"}, {IsURI: true, Value: "spiffe://a/b"}}}
	m := Model{
		HTTP:        []Listener{{Port: 80, Routes: []*Route{route(Prefix, "/", secure)}}},
		Passthrough: []Passthrough{{Hostnames: []string{"p"}, Port: 443, Backends: to("s", "443")}},
	}
	var kept Translator
	result, err := kept.Translate(m, options)
	if err != nil {
		t.Fatal(err)
	}
	_, c := translate(t, m, options)
	plain, tls := c.Clusters["shop:s:443"], c.Clusters["shop:s:443:tls"]
	if len(c.Clusters) != 2 || plain.TransportSocket != nil || plain.EdsClusterConfig.ServiceName != "shop/s:443" || tls.EdsClusterConfig.ServiceName != "shop/s:443" {
		t.Errorf("%v", c.Clusters)
	}
	if diff := cmp.Diff("[{s shop [443]}]", fmt.Sprint(c.Spec.BackendServices)); diff != "" {
		t.Error(diff)
	}
	want := `{
		name: envoy.transport_sockets.tls, typedConfig: {"@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext, sni: a.example.com, commonTlsContext: {tlsParams: {tlsMaximumProtocolVersion: TLSv1_3}, combinedValidationContext: {
			validationContextSdsSecretConfig: {name: cilium-secrets/shop-cfgmap-ca}, defaultValidationContext: {matchTypedSubjectAltNames: [
				{sanType: DNS, matcher: {exact: b.example.com}}, {sanType: DNS, matcher: {suffix: .example.org, ignoreCase: true}}, {sanType: URI, matcher: {exact: "spiffe://a/b"}}]}}}}}`
	if diff := cmp.Diff(plainOf(t, want), socketIn(t, result, "shop:s:443:tls")); diff != "" {
		t.Error(diff)
	}

	// What is kept of the model before does not outlast a change of its TLS.
	changed := to("s", "443")
	changed[0].TLS = &UpstreamTLS{ServerName: "new.example.com", Authority: Name{"shop", "ca"}}
	m.HTTP = []Listener{{Port: 80, Routes: []*Route{route(Prefix, "/", changed)}}}
	if result, err = kept.Translate(m, options); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(socketIn(t, result, "shop:s:443:tls")); !strings.Contains(got, "exact:new.example.com") {
		t.Error(got)
	}
}

// plainOf is YAML as JSON decodes it.
func plainOf(t *testing.T, text string) any {
	t.Helper()
	return plain(strings.ReplaceAll(text, "\t", " "))
}

// socketIn is the transport socket of a cluster as it is written.
func socketIn(t *testing.T, result Translation, cluster string) any {
	t.Helper()
	for _, r := range result.Spec.Resources {
		var c struct {
			Name            string
			TransportSocket any
		}
		if err := json.Unmarshal(r.Raw, &c); err != nil {
			t.Fatal(err)
		}
		if c.Name == cluster {
			return c.TransportSocket
		}
	}
	t.Fatalf("there is no cluster %s", cluster)
	return nil
}

// ENV-22: what Envoy would refuse is told before it is written.
func TestCheckUpstreamTLS(t *testing.T) {
	for _, test := range []struct {
		tls UpstreamTLS
		ok  bool
	}{
		{UpstreamTLS{ServerName: "a"}, true}, {UpstreamTLS{}, false}, {UpstreamTLS{ServerName: strings.Repeat("a", 256)}, false},
		{UpstreamTLS{ServerName: "a", Names: []SubjectAltName{{}}}, false}, {UpstreamTLS{ServerName: "a", Names: []SubjectAltName{{Value: "*"}}}, false},
		{UpstreamTLS{ServerName: "a", Names: []SubjectAltName{{Value: "*.a"}, {IsURI: true, Value: "x:y"}}}, true},
	} {
		if err := test.tls.Check(); (err == nil) != test.ok {
			t.Errorf("%+v: %v", test.tls, err)
		}
	}
}
