// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package spire

import (
	"strings"
	"testing"
	"time"

	"github.com/skep-operator/skep/resources/operatortest"
	"github.com/skep-operator/skep/runtime/cell/celltest"
)

func TestMain(m *testing.M) { operatortest.Main(m) }

const unreachable = "--k8s-api-server=http://127.0.0.1:1"

func TestCell(t *testing.T) {
	for _, on := range [][]string{{"--mesh-auth-mutual-enabled"}, {"--enable-ztunnel", "--ztunnel-ca-type=spire"}} {
		celltest.Check(t, Cell, celltest.With(operatortest.Resources...), celltest.InTerm("leader"),
			celltest.Args(append(on, unreachable)...), celltest.OffArgs(unreachable))
	}
}

// SPIRE-1 and SPIRE-2; SPIRE-E9; ZT-1 and ZT-2.
func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string // in the error, "" for none
	}{
		"defaults":              {nil, ""},
		"another trust domain":  {[]string{"--mesh-auth-spiffe-trust-domain=prod-1.example_x.org"}, ""},
		"upper case":            {[]string{"--mesh-auth-spiffe-trust-domain=Spiffe.Cilium"}, "--mesh-auth-spiffe-trust-domain"},
		"a space":               {[]string{"--mesh-auth-spiffe-trust-domain=spiffe cilium"}, "--mesh-auth-spiffe-trust-domain"},
		"no trust domain":       {[]string{"--mesh-auth-spiffe-trust-domain="}, "--mesh-auth-spiffe-trust-domain"},
		"a SPIFFE ID":           {[]string{"--mesh-auth-spiffe-trust-domain=spiffe://spiffe.cilium"}, "without spiffe://"},
		"a long trust domain":   {[]string{"--mesh-auth-spiffe-trust-domain=" + strings.Repeat("a", 256)}, "longer than 255"},
		"an IPv6 server":        {[]string{"--mesh-auth-spire-server-address=[fd00::1]:8081"}, ""},
		"no port":               {[]string{"--mesh-auth-spire-server-address=spire-server.spire.svc"}, "--mesh-auth-spire-server-address"},
		"no port number":        {[]string{"--mesh-auth-spire-server-address=spire-server.spire.svc:grpc"}, "from 1 to 65535"},
		"a large port":          {[]string{"--mesh-auth-spire-server-address=spire-server.spire.svc:70000"}, "from 1 to 65535"},
		"no host":               {[]string{"--mesh-auth-spire-server-address=:8081"}, "the host is no name or address"},
		"a URL":                 {[]string{"--mesh-auth-spire-server-address=https://spire:8081"}, "--mesh-auth-spire-server-address"},
		"a relative socket":     {[]string{"--mesh-auth-spire-agent-socket=agent.sock"}, "must be an absolute path"},
		"no time":               {[]string{"--mesh-auth-spire-server-connection-timeout=0"}, "--mesh-auth-spire-server-connection-timeout"},
		"off with a bad domain": {[]string{"--mesh-auth-mutual-enabled=false", "--mesh-auth-spiffe-trust-domain=A"}, ""},
		"off by the agents":     {[]string{"--mesh-auth-enabled=false", "--mesh-auth-spiffe-trust-domain=A"}, ""},
		"ztunnel alone":         {[]string{"--mesh-auth-enabled=false", "--enable-ztunnel", "--ztunnel-ca-type=spire", "--mesh-auth-spiffe-trust-domain=A"}, "--mesh-auth-spiffe-trust-domain"},
		"ztunnel by itself":     {[]string{"--mesh-auth-enabled=false", "--enable-ztunnel", "--mesh-auth-spiffe-trust-domain=A"}, ""},
		"no ztunnel":            {[]string{"--mesh-auth-enabled=false", "--ztunnel-ca-type=spire", "--mesh-auth-spiffe-trust-domain=A"}, ""},
		"an unknown authority":  {[]string{"--enable-ztunnel", "--ztunnel-ca-type=SPIRE"}, ""},
		"strictly":              {[]string{"--enable-ztunnel", "--ztunnel-ca-type=SPIRE", "--strict-config"}, "must be internal or spire"},
	} {
		_, err := operatortest.New(t, Cell, "", append([]string{unreachable, "--mesh-auth-mutual-enabled"}, c.args...)...)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SPIRE-10.
func TestBackoff(t *testing.T) {
	p := doubling{}.NewBackoff()
	var got []time.Duration
	for range 9 {
		got = append(got, p.Next())
	}
	if got[0] != 100*time.Millisecond || got[3] != 800*time.Millisecond || got[8] != 2*time.Second {
		t.Errorf("the pauses are %v", got)
	}
	if p.Reset(); p.Next() != 100*time.Millisecond {
		t.Error("it does not start again")
	}
}
