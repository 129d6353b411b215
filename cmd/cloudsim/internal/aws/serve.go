// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package aws serves EC2 and the instance metadata service.
package aws

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/skep-operator/skep/resources/cloudipam/ec2test"
)

// options are those of the command line.
type options struct {
	listen, metadata string
	kind, subnet     string
	instances        int
	throttle         bool
	lag, latency     time.Duration
}

func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("aws", flag.ContinueOnError)
	f.StringVar(&o.listen, "listen", "127.0.0.1:4566", "address of EC2")
	f.StringVar(&o.metadata, "metadata", "127.0.0.1:1338", "address of the metadata service")
	f.IntVar(&o.instances, "instances", 3, "number of instances: i-0, i-1 and so on")
	f.StringVar(&o.kind, "type", "m5.large", "type of the instances")
	f.StringVar(&o.subnet, "subnet", "10.1.0.0/16", "CIDR of the subnet")
	f.BoolVar(&o.throttle, "throttle", true, "have token buckets, of the sizes that EC2 publishes")
	f.DurationVar(&o.lag, "lag", 0, "how long descriptions may not show a change")
	f.DurationVar(&o.latency, "latency", 0, "how long a request takes")
	err = f.Parse(args)
	if err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unknown argument %q", f.Arg(0))
	}
	return o, err
}

// Serve serves until ctx ends, and prints the variables that point AWS' SDKs and tools at it.
func Serve(ctx context.Context, out io.Writer, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	c, err := o.cloud()
	if err != nil {
		return err
	}
	api, err := new(net.ListenConfig).Listen(ctx, "tcp", o.listen)
	if err != nil {
		return fmt.Errorf("serving EC2: choose another -listen: %w", err)
	}
	defer api.Close()
	metadata, err := new(net.ListenConfig).Listen(ctx, "tcp", o.metadata)
	if err != nil {
		return fmt.Errorf("serving the metadata service: choose another -metadata: %w", err)
	}
	defer metadata.Close()
	// The command line tool of AWS, 2.9, puts a path behind the endpoint of the metadata service as it is.
	fmt.Fprintf(out, "export AWS_ENDPOINT_URL_EC2=http://%s\nexport AWS_EC2_METADATA_SERVICE_ENDPOINT=http://%s/\n", api.Addr(), metadata.Addr())

	servers := []*http.Server{{Handler: c, ReadHeaderTimeout: time.Minute}, {Handler: c.Metadata(), ReadHeaderTimeout: time.Minute}}
	ended := make(chan error, len(servers))
	go func() { ended <- servers[0].Serve(api) }()
	go func() { ended <- servers[1].Serve(metadata) }()
	select {
	case <-ctx.Done():
	case err = <-ended:
	}
	for _, s := range servers {
		err = errors.Join(err, s.Close())
	}
	return err
}

func (o options) cloud() (*ec2test.Cloud, error) {
	c := ec2test.New()
	c.Throttling, c.Lag, c.Latency = o.throttle, o.lag, o.latency
	if _, _, err := net.ParseCIDR(o.subnet); err != nil {
		return nil, fmt.Errorf("-subnet: %w", err)
	}
	c.AddSubnet("subnet-a", "vpc-1", c.Region+"a", o.subnet, nil)
	c.AddIPv6("subnet-a", "2001:db8:0:a::/64")
	for i := range o.instances {
		if err := c.Run(fmt.Sprintf("i-%d", i), o.kind, "subnet-a", nil); err != nil {
			return nil, fmt.Errorf("starting instance %d: %w", i, err)
		}
	}
	return c, nil
}
