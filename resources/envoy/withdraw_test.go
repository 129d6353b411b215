// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package envoy

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// GW-63: keys are taken out of filter chains, with what has no other: the chain, the listener and what leads to it. Nothing else changes, and nothing at all
// where no listener would be left.
func TestWithdraw(t *testing.T) {
	chain := func(keys string) string {
		return `{"filters":[{"name":"f"}],"transportSocket":{"typedConfig":{"commonTlsContext":{"tlsCertificateSdsSecretConfigs":[` + keys + `]}}}}`
	}
	const (
		plain    = `{"filters":[{"name":"plain"}]}`
		own      = `{"name":"c/own"}`
		taken    = `{"name":"c/taken"}`
		routes   = `{"name":"routes","virtualHosts":[{"name":"c/taken"}]}`
		services = `"services":[{"name":"all"},{"listener":"first","name":"first"},{"listener":"second","name":"second"}]`
	)
	spec := func(services string, resources ...string) string {
		text := `{"spec":{"resources":[`
		for i, r := range resources {
			if i > 0 {
				text += ","
			}
			text += r
		}
		return text + `],` + services + `}}`
	}
	listener := func(name string, chains ...string) string {
		text := `{"filterChains":[`
		for i, c := range chains {
			if i > 0 {
				text += ","
			}
			text += c
		}
		return text + `],"name":"` + name + `"}`
	}
	for name, test := range map[string]struct {
		from, to string
		serves   bool
	}{
		"nothing to take":      {spec(services, listener("first", plain, chain(own)), routes), "", true},
		"one of two":           {spec(services, listener("first", chain(own+","+taken)), routes), spec(services, listener("first", chain(own)), routes), true},
		"a chain":              {spec(services, listener("first", plain, chain(taken), chain(own)), routes), spec(services, listener("first", plain, chain(own)), routes), true},
		"the second listener":  {spec(services, listener("first", plain), listener("second", chain(taken)), routes), spec(`"services":[{"name":"all"},{"listener":"first","name":"first"}]`, listener("first", plain), routes), true},
		"the first listener":   {spec(services, listener("first", chain(taken)), listener("second", plain), routes), spec(`"services":[{"listener":"second","name":"second"}]`, listener("second", plain), routes), true},
		"all that is there":    {spec(services, listener("first", chain(taken)), listener("second", chain(taken), chain(taken)), routes), "", false},
		"another form of spec": {`{"spec":{"resources":[7,{"filterChains":[null,8]}],` + services + `}}`, "", true},
	} {
		var u unstructured.Unstructured
		if err := json.Unmarshal([]byte(test.from), &u.Object); err != nil {
			t.Fatal(err)
		}
		serves := withdraw(&u, []string{"c/taken", "c/none"})
		got, err := json.Marshal(u.Object)
		if test.to == "" {
			test.to = test.from
		}
		if err != nil || serves != test.serves || string(got) != test.to {
			t.Errorf("%s: %t, %v, %s", name, serves, err, got)
		}
	}
}
