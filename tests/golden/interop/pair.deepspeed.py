# ranks 0 to 1: box0:0 box0:1
# ranks 2 to 3: mesh0:0 mesh0:1
PARTS = [0, 3, 4]


class Pipeline(PipelineModule):
    def _partition_layers(self, method="uniform"):
        stage = self._topo.get_coord(self.global_rank).pipe
        self.parts = PARTS
        self._set_bounds(start=PARTS[stage], stop=PARTS[stage + 1])


topology = PipeDataParallelTopology(num_pp=2, num_dp=2)
