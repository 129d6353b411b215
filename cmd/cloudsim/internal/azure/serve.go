// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package azure serves Azure's Resource Manager and its token service. Their hosts are fixed in Azure's clients, and speak TLS:
// so what is served is an HTTP proxy that answers for them itself, with a certificate of an authority of its own.
package azure

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/skep-operator/skep/cells/ipam/azure/armtest"
)

// options are those of the command line.
type options struct {
	listen, subnet, scaleSet string
	machines                 int
	latency                  time.Duration
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("azure", flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", "127.0.0.1:4567", "address of the proxy")
	f.StringVar(&o.subnet, "subnet", "10.240.0.0/16", "IPv4 CIDR of the subnet, /29 or larger")
	f.StringVar(&o.scaleSet, "scale-set", "pool1", "name of the machines' scale set; empty for stand-alone machines")
	f.IntVar(&o.machines, "machines", 3, "number of machines: 0, 1 and so on in a scale set, vm-0 and so on alone")
	f.DurationVar(&o.latency, "latency", 0, "how long a page of a list takes")
	err = f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return o, err
}

// Serve serves until ctx ends, and prints the variables that point Azure's SDKs and tools, and an operator for Azure, at it.
func Serve(ctx context.Context, out io.Writer, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	c, err := o.cloud()
	if err != nil {
		return err
	}
	authority, pair, err := newIdentity(armtest.Hosts)
	if err != nil {
		return err
	}
	file, err := keep(authority)
	if err != nil {
		return fmt.Errorf("keeping the certificate of the authority: %w", err)
	}
	defer os.Remove(file)
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("serving the proxy: choose another -listen: %w", err)
	}
	fmt.Fprint(out, variables(l.Addr(), file))
	return newProxy(c.Handler(), pair).serve(ctx, l)
}

// variables are what shells evaluate.
func variables(proxy net.Addr, authority string) string {
	var b strings.Builder
	for _, v := range [][2]string{
		{"HTTPS_PROXY", "http://" + proxy.String()},
		{"SSL_CERT_FILE", authority},
		{"REQUESTS_CA_BUNDLE", authority}, // of Azure's command line tool
		{"AZURE_ENVIRONMENT", "AzurePublicCloud"},
		{"AZURE_SUBSCRIPTION_ID", armtest.Subscription},
		{"AZURE_RESOURCE_GROUP", armtest.Group},
		{"AZURE_TENANT_ID", "tenant"},
		{"AZURE_CLIENT_ID", "client"},
		{"AZURE_CLIENT_SECRET", "secret"},
	} {
		fmt.Fprintf(&b, "export %s=%s\n", v[0], v[1])
	}
	return b.String()
}

// keep writes a certificate into a file for clients.
func keep(certificate []byte) (path string, err error) {
	file, err := os.CreateTemp("", "cloudsim-azure-*.pem")
	if err != nil {
		return "", err
	}
	_, err = file.Write(certificate)
	return file.Name(), errors.Join(err, file.Close())
}

func (o options) cloud() (*armtest.Cloud, error) {
	const reserved = 5 // Azure keeps five addresses of each subnet
	subnet, err := netip.ParsePrefix(o.subnet)
	if err != nil || !subnet.Addr().Is4() || subnet.Bits() > 29 {
		return nil, fmt.Errorf("-subnet: %q is no IPv4 CIDR of /29 or larger", o.subnet)
	}
	if free := 1<<(32-subnet.Bits()) - reserved; o.machines < 0 || o.machines > free {
		return nil, fmt.Errorf("-machines: %s has addresses for 0 to %d machines", subnet, free)
	}
	c := armtest.NewCloud(subnet.Masked().String())
	c.Latency = o.latency
	for i := range o.machines {
		name := fmt.Sprint(i)
		if o.scaleSet == "" {
			name = "vm-" + name
		}
		c.Run(armtest.Machine{ScaleSet: o.scaleSet, Name: name})
	}
	return c, nil
}
